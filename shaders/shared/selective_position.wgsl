{#- What the stages of a selective scan have in common: the call, the position of a workgroup, and loads of weights.
    Values: channels, times, states; varying: the weights that depend on time, and not on the channel. -#}
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
    // Some arrays share a buffer. These are the distances between them.
    series: u32,  // numbers from u to dt, and from dt to the gradient of y
    ends: u32,  // numbers from the decays to the gradient of the last states
    unused0: u32,
    unused1: u32,
    unused2: u32,
}

const CHANNELS = {{ channels }}u;
const TIMES = {{ times }}u;
const STATES = {{ states }}u;
const QUADS = STATES / 4u;
const LOG2_E = 1.4426950408889634;
// Rows of a tile are one number apart, so that invocations do not read from one bank of memory.
const PITCH = TIMES + 1u;

@group(0) @binding(0) var<uniform> call: Call;

// The channels of a workgroup: neighbours of one group.
struct Position {
    batch: u32,
    group: u32,
    strip: u32,  // which channels of the group
    first_row: u32,  // of the first channel; a row is a channel of a group of a batch
    present: u32,  // channels that exist
    exists: bool,  // true if the invocation's own channel exists
    channel: u32,  // the invocation's own; another one where it does not exist
    row: u32,
}

fn strip_count() -> u32 {
    return (call.channels + CHANNELS - 1u) / CHANNELS;
}

fn row_count() -> u32 {
    return call.batches * call.groups * call.channels;
}

// Return the chunk of a workgroup. It is no part of its position, which depends on the lane: Dawn allows barriers only
// where all invocations take the same path.
fn chunk_of(number: u32) -> u32 {
    return number / strip_count() / call.groups / call.batches;
}

fn position_of(number: u32, lane: u32) -> Position {
    let strips = strip_count();
    let strip = number % strips;
    let group = number / strips % call.groups;
    let batch = number / strips / call.groups % call.batches;
    let first_channel = strip * CHANNELS;
    let first_row = (batch * call.groups + group) * call.channels + first_channel;
    let present = min(CHANNELS, call.channels - first_channel);
    let own = min(lane, present - 1u);
    return Position(batch, group, strip, first_row, present, lane < present, first_channel + own, first_row + own);
}

fn is_state(state: u32) -> bool {
    return call.first_state + state < call.state_count;
}

// Return where the numbers of the invocation's channel begin.
fn decays_at(position: Position) -> u32 {
    return position.batch * call.decays_batch + (position.group * call.channels + position.channel) * call.state_count + call.first_state;
}
{% for name in ("inward", "outward") if name in varying + fixed %}

fn {{ name }}_begin(position: Position) -> u32 {
    return position.batch * call.{{ name }}_batch + position.group * call.{{ name }}_group + {{ "call.first_state * call.length" if name in varying else "position.channel * call." ~ name ~ "_channel + call.first_state" }};
}
{% endfor %}
{% for name in varying %}

// Return four weights at one time. Weights of states that do not exist are 0.
fn {{ name }}_of(begin: u32, quad: u32, time: u32) -> vec4<f32> {
    let rest = call.state_count - call.first_state;
    let state = vec4(4u * quad) + vec4(0u, 1u, 2u, 3u);
    let position = vec4(begin + time) + min(state, vec4(rest - 1u)) * call.length;
    let loaded = vec4({{ name }}[position.x], {{ name }}[position.y], {{ name }}[position.z], {{ name }}[position.w]);
    return select(vec4<f32>(), loaded, state < vec4(rest));
}
{% endfor %}
