{% set by_number = by_number is defined %}
{% if not by_number %}
// Litmus 1, a chain of tickets: do workgroups that have started keep making progress while others spin?
//
// In:  results, zeroed; more workgroups than can run at once.
// Out: results.next_ticket: the number of workgroups that ran.
//      results.timed_out: the number of workgroups that never saw the post of the ticket before their own. If it is not
//      0, the answer is no.
//
{% endif %}
// This is what decoupled look-back needs (Merrill & Garland, "Single-pass Parallel Prefix Scan with Decoupled
// Look-back", 2016) and decoupled fallback does without (Smith, Levien & Owens, SPAA 2025). As a litmus test of
// forward progress it follows Sorensen et al., "Portable Inter-workgroup Barrier Synchronisation for GPUs" (OOPSLA
// 2016): the occupancy-bound model promises that a workgroup which has started is not starved forever.
{% include "probe/results.wgsl" %}
{% set missed = "waited_by_number" if by_number else "timed_out" %}

// Some workgroups are late with their post, so that the next ones have to wait.
const LATE_EVERY: u32 = 64u;
const LATE_POLLS: u32 = 128u;
const POSTED: u32 = {{ 2 if by_number else 1 }}u;

var<workgroup> ticket: u32;

{% include "shared/pause.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) workgroup: vec3<u32>) {
    if (local_index == 0u) {
{% if by_number %}
        ticket = workgroup.x;
{% else %}
        // Tickets, not workgroup ids: the workgroup that holds an earlier ticket has started.
        ticket = atomicAdd(&results.next_ticket, 1u);
{% endif %}
        var posted = select(0u, POSTED, ticket == 0u);
        // Once one wait has timed out the answer is known, so the others need not wait until their bounds.
        for (var rounds = 0u; rounds < ROUNDS && posted < POSTED; rounds++) {
            if (atomicLoad(&results.{{ missed }}) != 0u) {
                break;
            }
            for (var polls = 0u; polls < POLLS && posted < POSTED; polls++) {
{% if pauses %}
                posted = atomicOr(&results.posts[ticket - 1u], 0u);  // as shared/peek.wgsl does
                if (pause(polls) == 0x70000001u) {
                    break;  // never so, but the compiler cannot tell, and keeps the pause
                }
{% else %}
                posted = atomicLoad(&results.posts[ticket - 1u]);
{% endif %}
            }
        }
        // The end of the loop is not success. Only the post is.
        if (posted < POSTED) {
            atomicAdd(&results.{{ missed }}, 1u);
{% if by_number %}
        } else {
            atomicAdd(&results.found_by_number, 1u);
{% endif %}
        }
        var late = select(0u, LATE_POLLS, ticket % LATE_EVERY == LATE_EVERY / 2u);
        for (; late > 0u && atomicLoad(&results.never) == 0u; late--) {}
    }
    // The other lanes wait here, like the lanes of a tile, and the last one posts. SwiftShader, for example, runs the
    // code after a barrier as a task of its own, which a spinning workgroup can delay.
    workgroupBarrier();
    if (local_index == WORKGROUP_SIZE - 1u) {
        atomicStore(&results.posts[ticket], POSTED);
    }
}
