// Litmus 3, the chain of probe_chain.wgsl by workgroup number: do workgroups start in the order of their numbers, so that
// one that waits for a lower number waits for one that has started?
//
// In:  results, after probe_chain; more workgroups than can run at once.
// Out: results.waited_by_number: those that never saw the post of the number before their own.
//      results.found_by_number: the others; all workgroups, or the answer is no.
//
// CUDA's scans rely on it (CUB numbers its tiles by block), and it saves a ticket's round trip to memory. The grid has one
// dimension; that larger ones start row by row is taken from CUB.
{% set by_number = true %}
{% include "probe/chain.wgsl" %}
