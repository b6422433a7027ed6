{#- Run mamba's recurrence for some states of every channel, along one chunk of time for each invocation:
    h[t] = exp(dt[t] A) h[t-1] + dt[t] B[t] u[t]. States are in registers and never leave them, except at a chunk's ends.
    A workgroup has neighbouring channels of one group, and loads TIMES steps of them at a time.
    in:  u, dt: (batch, group, channel, time); decays A and weights B, C: see Call; carries: with `later_chunks`, the
         states before each chunk, (chunk, row, state), where a row is a channel of a group of a batch
    out: with `totals`: ends: the states after each chunk if it begins at 0, (chunk, row, state); steps: the sum of dt
         over each chunk, (chunk, row). Else: y[t] = sum over states of C[t] h[t], in the shape of u, and last: the
         states after the last step, (row, state).
    Values: states: how many this stage computes, a multiple of 4; channels: of a workgroup; times; totals; later_chunks;
    adds: y has the sum over other states already; inward_varies, outward_varies: B or C depends on time, and not on the
    channel.
    Gu & Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (2023), algorithm 2. -#}
struct Call {
    batches: u32,
    groups: u32,
    channels: u32,  // of a group
    length: u32,
    chunk: u32,  // steps of a chunk
    chunks: u32,
    state_count: u32,
    first_state: u32,
    // From one batch, group or channel to the next, in numbers; 0 where an array does not depend on it.
    decays_batch: u32,
    inward_batch: u32,
    inward_group: u32,
    inward_channel: u32,
    outward_batch: u32,
    outward_group: u32,
    outward_channel: u32,
    unused: u32,
}

const CHANNELS = {{ channels }}u;
const TIMES = {{ times }}u;
const STATES = {{ states }}u;
// Rows of a tile are one number apart, so that invocations do not read from one bank of memory.
const PITCH = TIMES + 1u;

@group(0) @binding(0) var<uniform> call: Call;
@group(0) @binding(1) var<storage, read> source_u: array<f32>;
@group(0) @binding(2) var<storage, read> source_dt: array<f32>;
@group(0) @binding(3) var<storage, read> decays: array<f32>;
@group(0) @binding(4) var<storage, read> inward: array<f32>;
{% if totals %}
@group(0) @binding(5) var<storage, read_write> ends: array<f32>;
@group(0) @binding(6) var<storage, read_write> steps: array<f32>;
{% else %}
@group(0) @binding(5) var<storage, read> outward: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(7) var<storage, read_write> last: array<f32>;
{% if later_chunks %}
@group(0) @binding(8) var<storage, read> carries: array<f32>;
{% endif %}
{% endif %}

// The inputs of a tile; each is replaced by the output.
var<workgroup> tile_u: array<f32, {{ channels * (times + 1) }}>;
var<workgroup> tile_dt: array<f32, {{ channels * (times + 1) }}>;
{% set varying = (["inward"] if inward_varies else []) + (["outward"] if outward_varies and not totals else []) %}
{% for name in varying %}
var<workgroup> tile_{{ name }}: array<vec4<f32>, {{ times * states // 4 }}>;
{% endfor %}
{% set fixed = (["inward"] if not inward_varies else []) + (["outward"] if not outward_varies and not totals else []) %}

fn is_state(state: u32) -> bool {
    return call.first_state + state < call.state_count;
}
{% for name in varying %}

fn {{ name }}_at(begin: u32, state: u32, time: u32, end: u32) -> f32 {
    if (time >= end || !is_state(state)) {
        return 0.0;
    }
    return {{ name }}[begin + state * call.length + time];
}
{% endfor %}

@compute @workgroup_size({{ channels }})
fn main(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) grid: vec3<u32>,
) {
    // ----- The place of the workgroup
    let strips = (call.channels + CHANNELS - 1u) / CHANNELS;
    var rest = workgroup.x + workgroup.y * grid.x;
    let first_channel = rest % strips * CHANNELS;
    rest /= strips;
    let group = rest % call.groups;
    rest /= call.groups;
    let batch = rest % call.batches;
    let chunk = rest / call.batches;
    if (chunk >= call.chunks) {
        return;
    }
    let begin = chunk * call.chunk;
    let end = min(begin + call.chunk, call.length);
    let first_row = (batch * call.groups + group) * call.channels + first_channel;
    let present = min(CHANNELS, call.channels - first_channel);
    let exists = lane < present;
    let channel = first_channel + min(lane, present - 1u);
    let row = first_row + min(lane, present - 1u);
    let rows = call.batches * call.groups * call.channels;

    // ----- What does not depend on time
    let decays_begin = batch * call.decays_batch + (group * call.channels + channel) * call.state_count + call.first_state;
{% for name in varying %}
    let {{ name }}_begin = batch * call.{{ name }}_batch + group * call.{{ name }}_group + call.first_state * call.length;
{% endfor %}
{% for name in fixed %}
    let {{ name }}_begin = batch * call.{{ name }}_batch + group * call.{{ name }}_group + channel * call.{{ name }}_channel + call.first_state;
{% endfor %}
{% for quad in range(states // 4) %}
    var h{{ quad }} = vec4<f32>();
    var decay{{ quad }} = vec4<f32>();
{% for name in fixed %}
    var {{ name }}{{ quad }} = vec4<f32>();
{% endfor %}
{% for i in range(4) %}
{% set state = 4 * quad + i %}
    if (is_state({{ state }}u)) {
        decay{{ quad }}[{{ i }}] = decays[decays_begin + {{ state }}u];
{% for name in fixed %}
        {{ name }}{{ quad }}[{{ i }}] = {{ name }}[{{ name }}_begin + {{ state }}u];
{% endfor %}
{% if later_chunks and not totals %}
        h{{ quad }}[{{ i }}] = carries[(chunk * rows + row) * call.state_count + call.first_state + {{ state }}u];
{% endif %}
    }
{% endfor %}
{% endfor %}
{% if totals %}
    var total = 0.0;
{% endif %}

    for (var start = begin; start < end; start += TIMES) {
        // ----- Load a tile: neighbouring invocations load neighbouring times
        for (var i = lane; i < CHANNELS * TIMES; i += CHANNELS) {
            let time = start + i % TIMES;
            let at = i / TIMES;
            var numbers = vec2<f32>();
            if (at < present && time < end) {
                let from_here = (first_row + at) * call.length + time;
                numbers = vec2(source_u[from_here], source_dt[from_here]);
            }
            tile_u[at * PITCH + i % TIMES] = numbers.x;
            tile_dt[at * PITCH + i % TIMES] = numbers.y;
        }
{% if varying %}
        for (var i = lane; i < TIMES * STATES / 4u; i += CHANNELS) {
            let time = i % TIMES;
            let quad = i / TIMES;
{% for name in varying %}
            tile_{{ name }}[time * (STATES / 4u) + quad] = vec4(
{% for j in range(4) %}
                {{ name }}_at({{ name }}_begin, 4u * quad + {{ j }}u, start + time, end),
{% endfor %}
            );
{% endfor %}
        }
{% endif %}
        workgroupBarrier();

        // ----- Step by step
        for (var time = 0u; time < min(TIMES, end - start); time++) {
            let dt = tile_dt[lane * PITCH + time];
            let input = dt * tile_u[lane * PITCH + time];
{% if totals %}
            total += dt;
{% else %}
            var sum = 0.0;
{% endif %}
{% for quad in range(states // 4) %}
            h{{ quad }} = exp(dt * decay{{ quad }}) * h{{ quad }} + input * {{ "tile_inward[time * (STATES / 4u) + %du]" % quad if inward_varies else "inward%d" % quad }};
{% if not totals %}
            sum += dot({{ "tile_outward[time * (STATES / 4u) + %du]" % quad if outward_varies else "outward%d" % quad }}, h{{ quad }});
{% endif %}
{% endfor %}
{% if not totals %}
            tile_u[lane * PITCH + time] = sum;
{% endif %}
        }
        workgroupBarrier();
{% if not totals %}

        for (var i = lane; i < CHANNELS * TIMES; i += CHANNELS) {
            let time = start + i % TIMES;
            let at = i / TIMES;
            if (at < present && time < end) {
                let to_here = (first_row + at) * call.length + time;
                y[to_here] = {{ "y[to_here] + " if adds }}tile_u[at * PITCH + i % TIMES];
            }
        }
        workgroupBarrier();
{% endif %}
    }

    // ----- The states at the end
    if (!exists{{ " || end < call.length" if not totals }}) {
        return;
    }
{% if totals %}
    steps[chunk * rows + row] = total;
{% endif %}
{% for state in range(states) %}
    if (is_state({{ state }}u)) {
        {{ "ends[(chunk * rows + row)" if totals else "last[row" }} * call.state_count + call.first_state + {{ state }}u] = h{{ state // 4 }}[{{ state % 4 }}];
    }
{% endfor %}
}
