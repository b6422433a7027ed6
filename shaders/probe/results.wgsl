// The buffer that all of the probe's shaders write. Every word starts at 0.
struct ProbeResults {
    next_ticket: atomic<u32>,             // probe_chain: tickets handed out
    timed_out: atomic<u32>,          // probe_chain: workgroups that did not see the post before their own
    started: atomic<u32>,                 // probe_later: workgroups that have started
    started_while_spinning: atomic<u32>,  // probe_later: workgroups that the first one saw within its bound
    polls: atomic<u32>,                   // probe_spin: polls that one waiting invocation made before its bound
    subgroup_sizes: atomic<u32>,          // probe_subgroups: the sizes seen, or-ed together (each is a power of two)
    lanes_out_of_order: atomic<u32>,      // probe_subgroups: invocations with another lane than their index says
    never: atomic<u32>,                   // never written: a wait that cannot end polls it
    waited_by_number: atomic<u32>,        // probe_order: workgroups that did not see the post of the number before
    found_by_number: atomic<u32>,         // probe_order: workgroups that did
    halves_alike: atomic<u32>,            // probe_halves: patterns that WGSL's packing treats as NumPy does
    posts: array<atomic<u32>, {{ workgroups }}>,  // probe_chain, probe_order: one word a ticket
}

@group(0) @binding(0) var<storage, read_write> results: ProbeResults;

const WORKGROUPS: u32 = {{ workgroups }}u;
const WORKGROUP_SIZE: u32 = {{ workgroup_size }}u;
const ROUNDS: u32 = {{ rounds }}u;  // of POLLS polls: the bound of a wait
const POLLS: u32 = {{ polls }}u;
