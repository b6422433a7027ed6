{#- A call by the lanes of a block (parts/block_lanes.wgsl): the first subgroup, or where that is too narrow, all
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
