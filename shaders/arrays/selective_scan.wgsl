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
const LOG2_E = 1.4426950408889634;
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

// Return four weights at one time. Those of states that do not exist are 0.
fn {{ name }}_of(begin: u32, quad: u32, time: u32) -> vec4<f32> {
    let rest = call.state_count - call.first_state;
    let state = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    let place = vec4(begin + time) + min(state, vec4(rest - 1u)) * call.length;
    let found = vec4({{ name }}[place.x], {{ name }}[place.y], {{ name }}[place.z], {{ name }}[place.w]);
    return select(vec4<f32>(), found, state < vec4(rest));
}
{% endfor %}
{% set quads = (times * states // 4 + channels - 1) // channels %}
{#- Load a tile that begins at `start` into registers. Neighbouring invocations load neighbouring times. Loads beyond the
    end give some value, which is not used. -#}
{% macro load(start) %}
{% for i in range(times) %}
    {
        let place = lane + {{ i * channels }}u;
        let at = (first_row + min(place / TIMES, present - 1u)) * call.length + min({{ start }} + place % TIMES, end - 1u);
        next_u{{ i }} = source_u[at];
        next_dt{{ i }} = source_dt[at];
    }
{% endfor %}
{% for name in varying %}
{% for i in range(quads) %}
    next_{{ name }}{{ i }} = {{ name }}_of({{ name }}_begin, (lane + {{ i * channels }}u) / TIMES, min({{ start }} + (lane + {{ i * channels }}u) % TIMES, end - 1u));
{% endfor %}
{% endfor %}
{% endmacro %}

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
        decay{{ quad }}[{{ i }}] = LOG2_E * decays[decays_begin + {{ state }}u];
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

{% for i in range(times) %}
    var next_u{{ i }}: f32;
    var next_dt{{ i }}: f32;
{% endfor %}
{% for name in varying %}
{% for i in range(quads) %}
    var next_{{ name }}{{ i }}: vec4<f32>;
{% endfor %}
{% endfor %}
{{ load("begin") -}}

    for (var start = begin; start < end; start += TIMES) {
        // ----- Share the tile, and load the next one meanwhile
{% for i in range(times) %}
        tile_u[(lane + {{ i * channels }}u) / TIMES * PITCH + (lane + {{ i * channels }}u) % TIMES] = next_u{{ i }};
        tile_dt[(lane + {{ i * channels }}u) / TIMES * PITCH + (lane + {{ i * channels }}u) % TIMES] = next_dt{{ i }};
{% endfor %}
{% for i in range(quads if varying else 0) %}
        if (lane + {{ i * channels }}u < TIMES * STATES / 4u) {
            let place = (lane + {{ i * channels }}u) % TIMES * (STATES / 4u) + (lane + {{ i * channels }}u) / TIMES;
{% for name in varying %}
            tile_{{ name }}[place] = next_{{ name }}{{ i }};
{% endfor %}
        }
{% endfor %}
        workgroupBarrier();
{{ load("start + TIMES") -}}

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
            h{{ quad }} = exp2(dt * decay{{ quad }}) * h{{ quad }} + input * {{ "tile_inward[time * (STATES / 4u) + %du]" % quad if inward_varies else "inward%d" % quad }};
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

{% for i in range(times) %}
        {
            let place = lane + {{ i * channels }}u;
            let at = place / TIMES;
            let time = start + place % TIMES;
            if (at < present && time < end) {
                let to_here = (first_row + at) * call.length + time;
                y[to_here] = {{ "y[to_here] + " if adds }}tile_u[at * PITCH + place % TIMES];
            }
        }
{% endfor %}
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
