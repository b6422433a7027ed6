// How fast does one waiting invocation poll an atomic? The planner uses the speed to turn seconds into bounds. Does the
// driver end the loop? llvmpipe gives an invocation 65,535 iterations of all its loops together, and then leaves every
// loop after its first iteration.
//
// In:  results.never, which stays 0; one workgroup.
// Out: results.polls: the number of polls, ROUNDS * POLLS unless the driver ended the loop. The host times the pass.
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
