{#- Second dispatch of three_dispatch: one workgroup turns the aggregates of the tiles into their prefixes, block by
    block. The order of combination is that of every strategy: P(block) ⊕ K(tile).
    in:  the tile totals: the aggregate of each tile
    out: the tile totals: the prefix of each tile (tile 0 uses its own only if a carry comes in)
         carry_out: the carry of the next piece, if this piece is whole blocks -#}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "scan/item_exchange.wgsl" %}
{% include "scan/totals.wgsl" %}
{% include "scan/block_lanes.wgsl" %}

const GROUPS = {{ kernel.blocks_at_once }}u;  // blocks that the workgroup scans side by side
var<workgroup> block_totals: array<{{ text.shared_item }}, GROUPS>;

{% if spec.carried %}
@group(0) @binding({{ kernel.binding_of("carries") }}) var<storage, read> carries: array<u32>;
{% endif %}
{% if spec.carry_out %}
@group(0) @binding({{ kernel.binding_of("carry_out") }}) var<storage, read_write> carry_out: array<u32>;
{% endif %}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(local_invocation_index) invocation: u32,
{% if kernel.subgroups %}
    @builtin(subgroup_size) subgroup_size: u32,
{% endif %}
) {
{% if kernel.subgroups %}
    if (subgroup_size != SUBGROUP_SIZE) {
        state.subgroup_size = params.epoch;
        return;
    }
{% endif %}
{% if kernel.block_in_subgroup %}
    let lane = invocation % SUBGROUP_SIZE;
    let group = invocation / SUBGROUP_SIZE;
{% else %}
    let lane = invocation;
    let group = 0u;
{% endif %}
    let blocks = (params.tiles + BLOCK - 1u) / BLOCK;
{% if spec.carried %}
    var carry = {{ text.item_from_words("carries[{0}]") }};
    var known = true;
{% else %}
    var carry = read_total(0u);
    var known = false;
{% endif %}
    var coming = read_total(group * BLOCK + lane);
    for (var first = 0u; first < blocks; first += GROUPS) {
        let tile = (first + group) * BLOCK + lane;
        let sums = scan_block(lane, coming);
        coming = read_total(tile + GROUPS * BLOCK);  // loaded while this iteration folds
        if (lane == BLOCK - 1u) {
            block_totals[group] = {{ text.to_shared("sums") }};
        }
        workgroupBarrier();
        // Fold the blocks before this one's, left to right.
        var before = carry;
        var before_known = known;
        for (var other = 0u; other < GROUPS; other++) {
            let total = {{ text.from_shared("block_totals[other]") }};
            if (other < group) {
                before = pick(before_known, join(before, total), total);
                before_known = true;
            }
{% if spec.carry_out %}
            carry = pick(first + other < blocks, pick(known, join(carry, total), total), carry);
{% else %}
            carry = pick(known, join(carry, total), total);
{% endif %}
            known = true;
        }
{% if kernel.block_in_subgroup %}
        let exclusive = item_up(sums, 1u);
{% else %}
        let exclusive = block_item(invocation, sums, max(lane, 1u) - 1u);
{% endif %}
        workgroupBarrier();
        let prefix = pick(lane > 0u, pick(before_known, join(before, exclusive), exclusive), before);
        if (lane < BLOCK && tile < params.tiles) {
            write_total(tile, prefix);
        }
    }
{% if spec.carry_out %}
    if (invocation == 0u) {
{% for word in text.item_words("carry") %}
        carry_out[{{ loop.index0 }}] = {{ word }};
{% endfor %}
    }
{% endif %}
}
