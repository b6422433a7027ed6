{#- Find the first keys of each row in the order of a sort, without a sort: a workgroup takes a tile of a row and lists
    the indices of its first `kept` keys, in the order of their indices. The lists of a row are the candidates of the
    next round, until one tile holds them all (Alabi et al., "Fast k-selection algorithms for graphics processing
    units", 2012). A tile narrows its keys down digit by digit, from the highest one, until it knows the last key that
    it keeps. It leaves that key for the others, which drop what comes after it at once. What is dropped depends on the
    time, the result does not. Rounds before may select from a sample of the tiles, so that all tiles begin with such a
    key.
    in:  keys: rows; candidates: indices in these rows, or NO_INDEX, if not `first`; bounds, cleared before: for each
         row the complement of an order that no kept key exceeds, if `bounded`
    out: indices: `kept` for each tile, NO_INDEX where it has fewer keys; selected: their keys, if `final`
    Values: scalar; descending; workgroup_size; items: keys of an invocation; first; bounded; final. -#}
{% from "shared/packed_keys.wgsl" import key_at with context %}
{% set digits = scalar.bits // 8 if scalar.kind != "bool" else 1 %}
{% set wide = scalar.bits == 64 %}
{% set tile = workgroup_size * items %}
struct Call {
    rows: u32,
    row_length: u32,  // keys or candidates
    tiles: u32,  // in a row
    kept: u32,  // keys of each tile
    keys: u32,  // in a row
    stride: u32,  // the distance between two tiles, in tiles
}

const WORKGROUP_SIZE = {{ workgroup_size }}u;
const TILE = {{ tile }}u;
const WORDS = {{ (tile + 31) // 32 }}u;  // of one bit for each key of a tile
const GROUPS = 16u;  // of values of a digit, that are summed first
const NO_INDEX = 0xffffffffu;

{% include "sort/keys.wgsl" %}

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> keys: array<Key>;
@group(0) @binding(2) var<storage, read_write> indices: array<u32>;
{% set bindings = namespace(next=3) %}
{% if not first %}
@group(0) @binding({{ bindings.next }}) var<storage, read> candidates: array<u32>;
{% set bindings.next = bindings.next + 1 %}
{% endif %}
{% if bounded %}
@group(0) @binding({{ bindings.next }}) var<storage, read_write> bounds: array<atomic<u32>>;
{% set bindings.next = bindings.next + 1 %}
{% endif %}
{% if final %}
@group(0) @binding({{ bindings.next }}) var<storage, read_write> selected: array<Key>;
{% endif %}

// The part of the tile's last kept key that is decided so far.
struct Narrowed {
    prefix: Key,  // its highest digits
    wanted: u32,  // keys to keep among the keys with that prefix
    is_done: u32,  // 1 if all keys with that prefix are kept
}

var<workgroup> remaining: atomic<u32>;  // keys of the tile that are not dropped
var<workgroup> counts: array<atomic<u32>, 256>;  // keys with each value of a digit
var<workgroup> sums: array<u32, GROUPS>;
var<workgroup> narrowed: Narrowed;
var<workgroup> number: u32;
// One bit for each key. `before`: the keys before the last kept key. `ties`: the keys with its prefix.
var<workgroup> before: array<atomic<u32>, WORDS>;
var<workgroup> ties: array<atomic<u32>, WORDS>;
var<workgroup> before_counts: array<u32, WORDS>;  // of the words before
var<workgroup> tie_counts: array<u32, WORDS>;

fn bits_below(bit: u32) -> u32 {
    return (1u << bit) - 1u;
}

{% from "shared/main.wgsl" import main %}
{{ main() }} {
    let index = workgroup.x + workgroup.y * grid.x;
    if (index >= call.rows * call.tiles) {
        return;
    }
    let row = index / call.tiles;
    let begin = index % call.tiles {{ "* call.stride " if first }}* TILE;
    for (var i = invocation; i < WORDS; i += WORKGROUP_SIZE) {
        atomicStore(&before[i], 0u);
        atomicStore(&ties[i], 0u);
    }
    atomicStore(&remaining, 0u);
    workgroupBarrier();
{% if bounded %}
    let bound = ~atomicLoad(&bounds[row]);
{% endif %}
    var own = 0u;
{% for i in range(items) %}
    let at{{ i }} = begin + invocation + {{ i }}u * WORKGROUP_SIZE;
{% if first %}
    let key_index{{ i }} = min(at{{ i }}, call.row_length - 1u);
{% else %}
    let candidate{{ i }} = candidates[row * call.row_length + min(at{{ i }}, call.row_length - 1u)];
    let key_index{{ i }} = min(candidate{{ i }}, call.keys - 1u);
{% endif %}
{% endfor %}
{% for i in range(items) %}
    let key{{ i }} = {{ key_at("keys", "row * call.keys + key_index%d" % i) }};
{% endfor %}
{% for i in range(items) %}
    let order{{ i }} = order_of(key{{ i }});
    let is_there{{ i }} = at{{ i }} < call.row_length{{ " && candidate%d != NO_INDEX" % i if not first }}{{ " && order%d%s <= bound" % (i, ".y" if wide else "") if bounded }};
    own += select(0u, 1u, is_there{{ i }});
{% endfor %}
    if (own > 0u) {
        atomicAdd(&remaining, own);
    }
    workgroupBarrier();
    if (invocation == 0u) {
        number = atomicLoad(&remaining);
        narrowed = Narrowed(Key(), call.kept, 0u);
    }
    let key_count = workgroupUniformLoad(&number);
    let goal = index * call.kept;
    for (var i = min(key_count, call.kept) + invocation; i < call.kept; i += WORKGROUP_SIZE) {
        indices[goal + i] = NO_INDEX;
    }
    if (key_count == 0u) {
        return;
    }
    var mask = Key();  // the digits that are decided
    if (key_count > call.kept) {
        for (var digit = {{ digits }}u; digit > 0u; digit--) {
            for (var i = invocation; i < 256u; i += WORKGROUP_SIZE) {
                atomicStore(&counts[i], 0u);
            }
            let selection = workgroupUniformLoad(&narrowed);
            if (selection.is_done == 1u) {
                break;
            }
            let shift = (digit - 1u) * 8u;
            // Neighbouring keys of an invocation with one digit are counted at once.
            var value = 0u;
            var run = 0u;
{% for i in range(items) %}
            if (is_there{{ i }} && {{ "all((order%d & mask) == selection.prefix)" % i if wide else "(order%d & mask) == selection.prefix" % i }}) {
                let value{{ i }} = {{ "(select(order%d.x, order%d.y, shift >= 32u) >> (shift %% 32u)) & 0xffu" % (i, i) if wide else "(order%d >> shift) & 0xffu" % i }};
                if (value{{ i }} != value && run > 0u) {
                    atomicAdd(&counts[value], run);
                    run = 0u;
                }
                value = value{{ i }};
                run++;
            }
{% endfor %}
            if (run > 0u) {
                atomicAdd(&counts[value], run);
            }
            workgroupBarrier();
            for (var group = invocation; group < GROUPS; group += WORKGROUP_SIZE) {
                var sum = 0u;
                for (var i = 0u; i < 256u / GROUPS; i++) {
                    sum += atomicLoad(&counts[group * (256u / GROUPS) + i]);
                }
                sums[group] = sum;
            }
            workgroupBarrier();
            if (invocation == 0u) {
                var wanted = selection.wanted;
                var group = 0u;
                for (; group + 1u < GROUPS && sums[group] < wanted; group++) {
                    wanted -= sums[group];
                }
                var last = group * (256u / GROUPS);
                for (; last < 255u && atomicLoad(&counts[last]) < wanted; last++) {
                    wanted -= atomicLoad(&counts[last]);
                }
                let prefix = {{ "selection.prefix | select(vec2<u32>(last << (shift % 32u), 0u), vec2<u32>(0u, last << (shift % 32u)), shift >= 32u)" if wide else "selection.prefix | (last << shift)" }};
                narrowed = Narrowed(prefix, wanted, select(0u, 1u, atomicLoad(&counts[last]) == wanted));
            }
            workgroupBarrier();  // before the counts are cleared
            mask |= {{ "select(vec2<u32>(0xffu << (shift % 32u), 0u), vec2<u32>(0u, 0xffu << (shift % 32u)), shift >= 32u)" if wide else "0xffu << shift" }};
        }
    }
    let last = workgroupUniformLoad(&narrowed);
{% if bounded %}
    if (invocation == 0u && key_count > call.kept) {
        // The complement of the greatest order with the prefix.
        atomicMax(&bounds[row], {{ "mask.y & ~last.prefix.y" if wide else "mask & ~last.prefix" }});
    }
{% endif %}
{% for i in range(items) %}
{% set word = "(invocation + %du * WORKGROUP_SIZE) / 32u" % i %}
    if (is_there{{ i }}) {
        let prefix{{ i }} = order{{ i }} & mask;
        if (precedes(prefix{{ i }}, last.prefix)) {
            atomicOr(&before[{{ word }}], 1u << ((invocation + {{ i }}u * WORKGROUP_SIZE) % 32u));
        } else if ({{ "all(prefix%d == last.prefix)" % i if wide else "prefix%d == last.prefix" % i }}) {
            atomicOr(&ties[{{ word }}], 1u << ((invocation + {{ i }}u * WORKGROUP_SIZE) % 32u));
        }
    }
{% endfor %}
    workgroupBarrier();
    for (var i = invocation; i < WORDS; i += WORKGROUP_SIZE) {
        var sum = 0u;
        var tie_sum = 0u;
        for (var word = 0u; word < i; word++) {
            sum += countOneBits(atomicLoad(&before[word]));
            tie_sum += countOneBits(atomicLoad(&ties[word]));
        }
        before_counts[i] = sum;
        tie_counts[i] = tie_sum;
    }
    workgroupBarrier();
{% for i in range(items) %}
    if (is_there{{ i }}) {
        let word{{ i }} = (at{{ i }} - begin) / 32u;
        let below{{ i }} = bits_below((at{{ i }} - begin) % 32u);
        let bit{{ i }} = below{{ i }} + 1u;
        let earlier{{ i }} = tie_counts[word{{ i }}] + countOneBits(atomicLoad(&ties[word{{ i }}]) & below{{ i }});
        let is_tie{{ i }} = (atomicLoad(&ties[word{{ i }}]) & bit{{ i }}) != 0u && earlier{{ i }} < last.wanted;
        if (is_tie{{ i }} || (atomicLoad(&before[word{{ i }}]) & bit{{ i }}) != 0u) {
            let rank{{ i }} = before_counts[word{{ i }}] + countOneBits(atomicLoad(&before[word{{ i }}]) & below{{ i }}) + min(earlier{{ i }}, last.wanted);
            indices[goal + rank{{ i }}] = key_index{{ i }};
{% if final %}
            selected[goal + rank{{ i }}] = key{{ i }};
{% endif %}
        }
    }
{% endfor %}
}
