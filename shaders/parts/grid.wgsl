fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    return workgroup.x + workgroup.y * grid.x;
}
{% if kernel.subgroups %}

fn report_width() {
    state.width = params.epoch;
}
{% endif %}
