{#- Statements for the lanes of a block (scan/block_lanes.wgsl): for the first subgroup, or if it is too narrow, for all
    invocations, since there are barriers inside. -#}
{% macro by_lanes() %}
{% if kernel.block_in_subgroup %}
    if (invocation < SUBGROUP_SIZE) {
{{ (caller() | indent(4, true)).rstrip() }}
    }
{% else %}
{{ caller() -}}
{% endif %}
{% endmacro %}
{#- True if the condition holds in a lane of the subgroup. Without subgroups each lane waits for itself. -#}
{% macro any_lane(condition) %}{{ "subgroupAny" if kernel.block_in_subgroup }}({{ condition }}){% endmacro %}
{#- The scan over the lanes of a block. Where a block is as wide as a subgroup, a tile has this function already. -#}
{% set as_lanes = kernel.stage == "scan" and kernel.tile.block == kernel.tile.subgroup_size and not (kernel.loops_over_lanes or kernel.loops_over_block) %}
{% macro scan_block(lane, item) %}{{ "scan_lanes" if as_lanes else "scan_block" }}({{ lane }}, {{ item }}){% endmacro %}
{#- The first lane of the block where the condition holds; BLOCK or more if there is none. -#}
{% macro first_lane_where(condition) -%}
{% if kernel.block_in_subgroup -%}
countTrailingZeros(subgroupBallot({{ condition }}).x{{ " | %du" % 2 ** kernel.tile.block if kernel.tile.block < 32 }})
{%- else -%}
first_lane_where(invocation, {{ condition }})
{%- endif %}
{%- endmacro %}
{#- The item of a lane of the block. -#}
{% macro block_item(item, lane) %}{{ "item_at(" if kernel.block_in_subgroup else "block_item(invocation, " }}{{ item }}, {{ lane }}){% endmacro %}
