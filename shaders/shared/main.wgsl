{#- The head of the main function of most kernels. `invocation` counts within the workgroup; workgroups are numbered by
    workgroup.x + workgroup.y * grid.x. `more` is one more parameter of the function. `size` is the size of a workgroup,
    and `invocation` another name. #}
{% macro main(more="", size="WORKGROUP_SIZE", invocation="invocation") %}
@compute @workgroup_size({{ size }})
fn main(
    @builtin(local_invocation_index) {{ invocation }}: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if more %}
    {{ more }},
{% endif %}
)
{%- endmacro %}
