{#- Statements that learn the prefix of a tile, from what the functions of scan/prefix_*.wgsl give. -#}
{#- Wait for the prefix. A tile whose wait timed out ends here. -#}
{% macro await_prefix() %}
{% if kernel.strategy == "lookback" and not kernel.wait_policy.at_once %}
    if (share_look_back(invocation, tile, aggregate) != NO_TILE) {  // in any invocation: a driver may end a loop for some of them
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
