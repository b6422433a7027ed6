{#- What every fold of the aggregates begins with: what it calls, and how often it looks. -#}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/carry_in.wgsl" %}
{% include "shared/pause.wgsl" %}
{% include "scan/prefix_result.wgsl" %}
// ----- Fold of the aggregates
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;
const PATIENCE = max(1u, SPINS_PER_ROUND / {{ kernel.heuristics.fold_patience_divisor }}u);  // looks that find nothing new, for one round of a wait
const GLANCE = {{ kernel.heuristics.fold_glance }}u;  // looks that find nothing new until the fold asks whether the run timed out
