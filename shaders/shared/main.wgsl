{#- The head of the main function of most kernels. `invocation` counts within the workgroup; workgroups are numbered by
    workgroup.x + workgroup.y * grid.x. `more` is one more parameter of the function. #}
{% macro main(more="") %}
@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
{% if more %}
    {{ more }},
{% endif %}
)
{%- endmacro %}
