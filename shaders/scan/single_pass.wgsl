{#- What lookback and fallback share: the functions of the look-back, and where the workgroup finds its outcome. -#}
{% if kernel.wait_policy.one_workgroup_folds %}
{% include "scan/look_back_by_fold.wgsl" %}
{% else %}
{% include "shared/tile_state.wgsl" %}
{% include "scan/block_lanes.wgsl" %}
{% include "scan/look_back_in_row.wgsl" if kernel.tile.per_row else "scan/look_back.wgsl" %}

var<workgroup> shared_late: u32;  // the tile that the look-back waits for, or NO_TILE
var<workgroup> shared_prefix: {{ text.shared_item }};
{% endif %}
