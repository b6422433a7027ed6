{#- Second dispatch of a scan in the canonical order: one workgroup joins the totals of the tiles in halves.
    in:  the tile totals: the total of each tile
    out: the tile totals: at index t, the total of the largest half that ends with tile t and begins at a
         multiple of its size (Fenwick 1994); at the index of a span's last tile, the fold of all spans up to it, from
         the left, after the carry that came in
         carry_out: the fold of all spans, if this piece is whole spans
    scan/store_tile.wgsl computes the item before tile t. It joins the items at the indices before t, before t without
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
{#- Pairs that an invocation reads before it writes, since each access takes long. -#}
{% set pairs = 4 %}
var<workgroup> folds: array<{{ text.shared_item }}, WORKGROUP_SIZE>;

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(@builtin(local_invocation_index) invocation: u32) {
    for (var half = 1u; half < TILES_PER_SPAN; half *= 2u) {
        let distance = 2u * half * WORKGROUP_SIZE;
        for (var last = (2u * invocation + 2u) * half - 1u; last < params.tiles; last += {{ pairs }}u * distance) {
{% for pair in range(pairs) %}
            let left{{ pair }} = read_total(last + {{ pair }}u * distance - half);
            let right{{ pair }} = read_total(last + {{ pair }}u * distance);
{% endfor %}
            write_total(last, join(left0, right0));
{% for pair in range(1, pairs) %}
            if (last + {{ pair }}u * distance < params.tiles) {
                write_total(last + {{ pair }}u * distance, join(left{{ pair }}, right{{ pair }}));
            }
{% endfor %}
        }
        storageBarrier();
    }
{% if spec.carried %}
    var fold = carry_in();
{% else %}
    var fold = read_total(min(TILES_PER_SPAN, params.tiles) - 1u);
{% endif %}
    // Fold as many spans at a time as there are invocations to read and write the totals.
    let spans = params.tiles / TILES_PER_SPAN;
    for (var first = 0u; first < spans; first += WORKGROUP_SIZE) {
        let last = (first + invocation + 1u) * TILES_PER_SPAN - 1u;
        folds[invocation] = {{ text.to_shared("read_total(last)") }};
        workgroupBarrier();
        if (invocation == 0u) {
            for (var span = 0u; span < min(spans - first, WORKGROUP_SIZE); span++) {
{% if spec.carried %}
                fold = join(fold, {{ text.from_shared("folds[span]") }});
{% else %}
                let total = {{ text.from_shared("folds[span]") }};
                fold = pick(first + span > 0u, join(fold, total), total);
{% endif %}
                folds[span] = {{ text.to_shared("fold") }};
            }
        }
        workgroupBarrier();
        if (first + invocation < spans) {
            write_total(last, {{ text.from_shared("folds[invocation]") }});
        }
        workgroupBarrier();
    }
{% if spec.carry_out %}
    if (invocation != 0u) {
        return;
    }
    let words = item_to_words(fold);
{% for word in range(kernel.item_words) %}
    carry_out[{{ word }}] = words[{{ word }}];
{% endfor %}
{% endif %}
}
