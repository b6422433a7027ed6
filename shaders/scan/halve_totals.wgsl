{#- Second dispatch of a scan in the canonical order: one workgroup joins the totals of the tiles in halves.
    in:  the tile totals: the total of each tile
    out: the tile totals: in the place of tile t, the total of the largest half that ends with tile t and begins at a
         multiple of its size (Fenwick 1994); in the place of a span's last tile, the fold of all spans up to it, from
         the left, after the carry that came in
         carry_out: the fold of all spans, if this piece is whole spans
    scan/store_tile.wgsl computes the item before tile t. It joins the items in the places before t, before t without
    its lowest set bit, and so on, from the nearest one on. -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/totals.wgsl" %}
{% include "scan/carry_in.wgsl" %}
{% if spec.carry_out %}
@group(0) @binding({{ kernel.binding_of("carry_out") }}) var<storage, read_write> carry_out: array<u32>;
{% endif %}
const TILES_PER_SPAN = {{ kernel.tiles_per_span }}u;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(local_invocation_index) invocation: u32) {
    for (var half = 1u; half < TILES_PER_SPAN; half *= 2u) {
        for (var last = (2u * invocation + 2u) * half - 1u; last < params.tiles; last += 2u * half * WORKGROUP_SIZE) {
            write_total(last, join(read_total(last - half), read_total(last)));
        }
        storageBarrier();
    }
    if (invocation != 0u) {
        return;
    }
{% if spec.carried %}
    var fold = carry_in();
{% else %}
    var fold = read_total(min(TILES_PER_SPAN, params.tiles) - 1u);
{% endif %}
    for (var last = TILES_PER_SPAN - 1u; last < params.tiles; last += TILES_PER_SPAN) {
{% if spec.carried %}
        fold = join(fold, read_total(last));
{% else %}
        let total = read_total(last);
        fold = pick(last >= TILES_PER_SPAN, join(fold, total), total);
{% endif %}
        write_total(last, fold);
    }
{% if spec.carry_out %}
    let words = item_to_words(fold);
{% for word in range(kernel.item_words) %}
    carry_out[{{ word }}] = words[{{ word }}];
{% endfor %}
{% endif %}
}
