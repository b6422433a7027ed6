// How fast one waiting invocation polls an atomic, by which the planner turns seconds into bounds; and whether the
// driver lets it: llvmpipe gives an invocation 65,535 iterations, of all its loops together, and leaves every loop
// after its first iteration from then on.
//
// In:  results.never, which stays 0; one workgroup.
// Out: results.polls: the polls made, ROUNDS * POLLS unless the driver broke off. The host times the pass.
{% include "probe/results.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(local_invocation_index) local_index: u32) {
    if (local_index == 0u) {
        var made = 0u;
        for (var rounds = 0u; rounds < ROUNDS; rounds++) {
            for (var polls = 0u; polls < POLLS && atomicLoad(&results.never) == 0u; polls++) {
                made++;
            }
        }
        atomicStore(&results.polls, made);
    }
}
