{#- A call by the lanes of a block (scan/block_lanes.wgsl): by the first subgroup, or if it is too narrow, by all
    invocations, since there are barriers inside. -#}
{% macro by_lanes(call) %}
{% if kernel.block_in_subgroup %}
    if (invocation < SUBGROUP_SIZE) {
        {{ call }};
    }
{%- else %}
    {{ call }};
{%- endif %}
{% endmacro %}
