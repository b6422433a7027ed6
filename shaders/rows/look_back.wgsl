{#- One pass over few rows: each part posts its aggregate, and the last part of a row waits for the posts of the others.
    in:  the sources, the initial values, the tile state
    out: the destinations -#}
{% from "shared/posts.wgsl" import post_aggregate with context %}
{% from "shared/wait.wgsl" import wait with context %}
{% set scheduler = kernel.test_build.scheduler %}
{% include "shared/header.wgsl" %}
{% include "shared/element.wgsl" %}
{% include "shared/operator.wgsl" %}
{% include "rows/fold.wgsl" %}
{% include "shared/tile_state.wgsl" %}
{% include "shared/pause.wgsl" %}
const SPINS_PER_ROUND = {{ kernel.wait_policy.spins_per_round }}u;

var<workgroup> late: atomic<u32>;  // 1 if a post has not come in time

// Combine the posts of the parts before the last one, and its own aggregate, in the order of the last dispatch of
// three_dispatch. The first lane gets the result.
fn combine_posts(part: u32, parts: u32, invocation: u32, aggregate: Item) -> Item {
    if (invocation == 0u) {
        lane_totals[0] = {{ text.to_shared("aggregate") }};
    }
    workgroupBarrier();
    let own = {{ text.from_shared("lane_totals[0]") }};
    var total = own;
    var known = false;
    for (var other = part + 1u - parts + invocation; other <= part; other += LANES) {
        var item = own;
        if (other < part) {
            var post = read_post(aggregate_of(other));
{% call wait("post.ready", "given_up()") %}
            post = read_post(aggregate_of(other));
{% endcall %}
            if (!post.ready) {
                report_timeout();
                atomicStore(&late, 1u);
                break;
            }
            item = post.item;
        }
        total = pick(known, join(total, item), item);
        known = true;
    }
    return join_lanes(invocation, total, parts);
}

{% from "shared/main.wgsl" import main %}
{% from "shared/take_tile.wgsl" import take_ticket with context %}
{{ main() }} {
{{ take_ticket("part").rstrip() }}
    if (part >= params.tiles) {
        return;
    }
    if (invocation == 0u) {
        atomicStore(&late, 0u);  // workgroup memory need not begin as zero
    }
    let aggregate = reduce(span_of(part), invocation);
    let parts = params.tiles / count_rows();
    let row = part / parts;
    if (part + 1u != (row + 1u) * parts) {
{{ post_aggregate("part") | indent(4, true) -}}
{% if scheduler == "serial" %}
        leave();
{% endif %}
        return;
    }
    let total = combine_posts(part, parts, invocation, aggregate);
    if (invocation == 0u && atomicLoad(&late) == 0u) {
        let whole = {{ "combine(seed(row), total)" if spec.initial else "total" }};
        store_result(row, {{ text.map_result("whole") }});
    }
{% if scheduler == "serial" %}
    leave();
{% endif %}
}
