// Litmus 3, the chain of probe/chain.wgsl by workgroup number: do workgroups start in the order of their numbers, so
// that a workgroup that waits for a lower number waits for one that has started?
//
// In:  results, after probe/chain.wgsl; more workgroups than can run at once.
// Out: results.waited_by_number: the number of workgroups that never saw the post of the number before their own.
//      results.found_by_number: the number of the others. Unless it is the number of all workgroups, the answer is no.
//
// CUDA's scans rely on this order (CUB numbers its tiles by block), and it saves a ticket's round trip to memory. The
// grid has one dimension. That larger grids start row by row is assumed, as in CUB.
{% set by_number = true %}
{% include "probe/chain.wgsl" %}
