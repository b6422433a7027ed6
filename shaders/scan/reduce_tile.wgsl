{% from "scan/subgroup_scan.wgsl" import first_of, place, scan_bands, scan_steps with context %}
// The aggregate of a tile, by the same tree as its scan; every invocation gets it.
fn reduce_tile(tile: u32, invocation: u32) -> Item {
{% if kernel.subgroups %}
    let lane = invocation % SUBGROUP_SIZE;
    let subgroup = invocation / SUBGROUP_SIZE;
{% endif %}
    let first = {{ first_of("tile") }};
{% if kernel.subgroups %}
{% for step in range(kernel.tile.steps) %}
    let loaded{{ step }} = {{ "load(" ~ place(step) ~ ", invocation)" if kernel.exchanges_chunks else ("load_sources(" if kernel.takes_steps else "load_chunk(") ~ place(step) ~ ")" }};
{% endfor %}
{% call(step) scan_steps() %}{{ "chunk_of(" ~ place(step) ~ ", loaded" ~ step ~ ", invocation)" if kernel.exchanges_chunks else "loaded" ~ step }}{% endcall %}
{% set band_steps = kernel.tile.band_steps %}
{% for step in range(kernel.tile.steps) %}
    let total{{ step }} = item_at(lanes{{ step }}, SUBGROUP_SIZE - 1u);
    let carry{{ step }} = {{ "join(carry" ~ (step - 1) ~ ", total" ~ step ~ ")" if step % band_steps else "total" ~ step }};
{% endfor %}
{{ scan_bands("carry{0}") -}}
{% else %}
    _ = scan_invocations(invocation, {{ "compose_chunk(first, load_sources(first))" if kernel.takes_steps else "scan_chunk(load_chunk(first))[CHUNK - 1u]" }});
    let aggregate = {{ text.from_shared("scratch[WORKGROUP_SIZE - 1u]") }};
    workgroupBarrier();
{% endif %}
    return aggregate;
}
