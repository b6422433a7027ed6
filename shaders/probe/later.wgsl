// Litmus 2: do later workgroups start while an earlier one spins?
//
// In:  results, zeroed; more workgroups than can run at once.
// Out: results.started: the number of workgroups that ran.
//      results.started_while_spinning: the number of workgroups that had started, itself included, when the first one
// ended      its wait. Unless it is the number of all workgroups, the answer is no.
//
// Then look-ahead is fast: its first workgroup runs until every later tile has posted. Of the models that Sorensen,
// Evrard & Donaldson compare ("GPU Schedulers: How Fair Is Fair Enough?", CONCUR 2018), only full fairness promises it,
// so it has to be tested. For example, llvmpipe gives each of its threads a fixed share of the grid, and the rest of
// the spinning thread's share never starts.
{% include "probe/results.wgsl" %}

{% include "shared/pause.wgsl" %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(local_invocation_index) local_index: u32) {
    if (local_index == 0u) {
        var started = atomicAdd(&results.started, 1u) + 1u;
        if (started == 1u) {
            for (var rounds = 0u; rounds < ROUNDS && started < WORKGROUPS; rounds++) {
                for (var polls = 0u; polls < POLLS && started < WORKGROUPS; polls++) {
{% if pauses %}
                    started = atomicOr(&results.started, 0u);  // as shared/peek.wgsl does
                    if (pause(polls) == 0x70000001u) {
                        break;  // never so, but the compiler cannot tell, and keeps the pause
                    }
{% else %}
                    started = atomicLoad(&results.started);
{% endif %}
                }
            }
            atomicStore(&results.started_while_spinning, started);
        }
    }
}
