fn tile_of(invocation: u32, workgroup: vec3<u32>, grid: vec3<u32>) -> u32 {
    let number = workgroup.x + workgroup.y * grid.x;
{% if kernel.last_tiles_first %}
    return params.tiles - 1u - number;  // past the end it wraps, and stays past it
{% else %}
    return number;
{% endif %}
}
