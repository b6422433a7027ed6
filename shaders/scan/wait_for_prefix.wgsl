{#- One invocation waits, within bounds, for the prefix of its tile; the outcome is for the whole workgroup. A workgroup
    that waits and finds that none folds has to fold. Under look-ahead it seldom looks whether that is so. -#}
{% from "shared/peek.wgsl" import peek with context %}
{% from "shared/wait.wgsl" import wait with context %}
// ----- Wait for a prefix
const FOUND = 0u;  // the prefix is in shared_prefix
const FOLD = 1u;  // none folds: this workgroup has to, and then looks again
const LATE = 2u;  // the bound has run out
{% if kernel.strategy == "lookahead" %}
// Looks at the prefix, for one at whether a workgroup folds.
const HANDOVER_SPINS = {{ kernel.heuristics.handover_spins }}u;
{% endif %}

var<workgroup> shared_outcome: u32;
var<workgroup> shared_prefix: {{ text.shared_item }};

// Wait in rounds of this many spins.
fn look(invocation: u32, tile: u32, spins: u32) -> u32 {
    if (invocation == 0u && tile == 0u) {
{% if spec.carried %}
        shared_prefix = {{ text.to_shared("carry_in()") }};
{% endif %}
        shared_outcome = FOUND;
    } else if (invocation == 0u) {
        var post = read_{{ kernel.prefix_post }}(prefix_after(tile - 1u));
        var folds = false;
{% set polls %}
{% call wait("(post.ready | folds)", "given_up()" if kernel.times_out else "", "spins") %}
        post = read_{{ kernel.prefix_post }}(prefix_after(tile - 1u));
{% if kernel.heads_cut_off %}
        // A head in the tile before cuts off everything before it.
        let neighbour = read_post(aggregate_of(tile - 1u));
        let cut = neighbour.ready && neighbour.item.head != 0u{{ " && tile < params.tiles" if spec.carry_out }};
        post = Post(post.ready || cut, pick(post.ready, post.item, neighbour.item));
{% endif %}
        if ({{ "spin % HANDOVER_SPINS == HANDOVER_SPINS - 1u && " if kernel.strategy == "lookahead" }}{{ peek("folding") }} != params.epoch) {
            folds = atomicExchange(&state.folding, params.epoch) != params.epoch;
        }
{% endcall %}
{% endset %}
{{ (polls | indent(4, true)).rstrip() }}
        shared_prefix = {{ text.to_shared("post.item") }};
        shared_outcome = select(select(LATE, FOUND, post.ready), FOLD, folds);
    }
    return workgroupUniformLoad(&shared_outcome);
}
