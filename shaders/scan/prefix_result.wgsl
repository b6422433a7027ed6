{#- Statements that learn the prefix of a tile, from what the functions of scan/prefix_*.wgsl give. -#}
{% from "scan/by_lanes.wgsl" import by_lanes with context %}
{#- Look back once, by the lanes of a block, for the whole workgroup. `late` is NO_TILE, or the late tile. -#}
{% macro share_look_back() %}
{% if kernel.wait_policy.one_workgroup_folds %}
    let late = share_look_back(invocation, tile, aggregate);
{% else %}
{% call by_lanes() %}
    var found = aggregate;
    let missing = look_back(invocation, tile, aggregate, &found);
    if (invocation == 0u) {
        shared_late = missing;
        shared_prefix = {{ text.to_shared("found") }};
    }
{% endcall %}
    let late = workgroupUniformLoad(&shared_late);
{% endif %}
{% endmacro %}
{#- Look for the prefix under look-ahead: FOUND, FOLD if the workgroup has to fold, or LATE if the wait timed out. -#}
{% macro look_for_prefix() %}{{ "look_twice(invocation, tile)" if spec.carry_out else "look(invocation, tile, SPINS_PER_ROUND)" }}{% endmacro %}
{#- Wait for the prefix. A tile whose wait timed out ends here. -#}
{% macro await_prefix() %}
{% if kernel.strategy == "lookback" and not kernel.wait_policy.at_once %}
{{ share_look_back().rstrip() }}
    if (late != NO_TILE) {  // in any invocation: a driver may end a loop for some of them
        report_timeout();
        return;
    }
{% elif kernel.posts %}
    if (!await_prefix(invocation, tile, aggregate)) {
{% if kernel.strategy == "lookahead" and kernel.test_build.scheduler == "serial" %}
        leave();
{% endif %}
        return;
    }
{% endif %}
{% endmacro %}
{#- Name the prefix: `prefix`, which counts if `has_prefix`. -#}
{% macro name_prefix() %}
    let has_prefix = {{ "false" if kernel.strategy == "alone" else "tile % tiles_per_row() > 0u" if kernel.tile.per_row else "true" if spec.carried else "tile > 0u" }};
{% if kernel.strategy == "alone" %}
    let prefix = aggregate;
{% elif kernel.strategy == "three_dispatch" %}
    let prefix = {{ "prefix_in_row(invocation, tile)" if kernel.tile.per_row else "read_total(tile)" }};
{% elif kernel.wait_policy.at_once %}
    let prefix = fold_of_blocks(tile);
{% else %}
    let prefix = {{ text.from_shared("shared_prefix") }};
{% endif %}
{% endmacro %}
