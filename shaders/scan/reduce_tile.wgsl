{% from "scan/subgroup_scan.wgsl" import first_of, load_steps, scan_bands, scan_steps with context %}
// The aggregate of a tile, by the same tree as its scan; every invocation gets it.
fn reduce_tile(tile: u32, invocation: u32) -> Item {
{% if kernel.subgroups %}
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
    let first = {{ first_of("tile") }};
{{ load_steps() -}}
{% if kernel.subgroups %}
{{ scan_steps() -}}
{% set band_steps = kernel.tile.band_steps %}
{% for step in range(kernel.tile.steps) %}
    let total{{ step }} = item_at(lanes{{ step }}, SUBGROUP_SIZE - 1u);
    let carry{{ step }} = {{ "join(carry" ~ (step - 1) ~ ", total" ~ step ~ ")" if step % band_steps else "total" ~ step }};
{% endfor %}
{{ scan_bands("carry{0}") -}}
{% else %}
    _ = scan_invocations(invocation, {{ "compose_chunk(first, loaded[0])" if kernel.takes_steps else "scan_chunk(loaded[0])[CHUNK - 1u]" }});
    let aggregate = {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
    workgroupBarrier();
{% endif %}
    return aggregate;
}
