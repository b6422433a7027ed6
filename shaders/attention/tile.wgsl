{#- What the stages of a gated linear attention have in common: the call, the position of a workgroup, loads, and
    products of 32 x 32 numbers. A workgroup of 64 invocations holds a product in registers: invocation 8 y + x has its
    rows 4 y to 4 y + 3 and its columns 4 x to 4 x + 3. Steps beyond the end and columns that do not exist are 0.
    Values: delta: the delta rule corrects the values; by_key: the decays depend on the key. -#}
struct Call {
    batches: u32,
    heads: u32,
    length: u32,
    keys: u32,  // numbers of a key
    values: u32,  // numbers of a value
    first_chunk: u32,  // of this window
    chunks: u32,  // of this window
    scale: f32,
    // Some arrays share a buffer. These are their offsets in it, in numbers.
    beta: u32,  // in `gates`
    grads: u32,  // in `states`: the gradients of the states; in `updates`: the gradients of the updates
    grads_of_updates: u32,
    grads_of_k: u32,  // in `results`, where the gradient of q is the first
    grads_of_g: u32,
    grads_of_beta: u32,
    unused0: u32,
    unused1: u32,
}

const CHUNK = 32u;  // steps of a chunk; also rows and columns of a product
const LANES = 64u;
// The matrices of a chunk: pairs of steps, and with the delta rule the solution of its system.
const MATRICES = {{ 2 if delta else 1 }}u;
// Rows of shared matrices are one vector apart from a multiple of eight, so that invocations do not read one bank of
// memory.
const PITCH = 9u;

@group(0) @binding(0) var<uniform> call: Call;

// The head of a workgroup, and its chunk and the first step of that.
var<private> batch: u32;
var<private> head: u32;
var<private> chunk: u32;  // of the window
var<private> start: u32;

fn take_head(number: u32) {
    head = number % call.heads;
    batch = number / call.heads;
}

fn take_chunk(number: u32) {
    chunk = number;
    start = (call.first_chunk + number) * CHUNK;
}

// Return the index of a step of the chunk among all steps of all heads.
fn position_of(step: u32) -> u32 {
    return (batch * call.length + start + step) * call.heads + head;
}

fn exists(step: u32) -> bool {
    return start + step < call.length;
}

// Return the last step of the chunk that exists.
fn last_step() -> u32 {
    return min(CHUNK, call.length - start) - 1u;
}

// Return the index of a number of the state before a chunk of the window.
fn state_index(number: u32, key: u32, value: u32) -> u32 {
    return (((number * call.batches + batch) * call.heads + head) * call.keys + key) * call.values + value;
}

// Return the index of the first number of a matrix of the chunk.
fn matrix_index(number: u32) -> u32 {
    return (((chunk * call.batches + batch) * call.heads + head) * MATRICES + number) * CHUNK * CHUNK;
}

{# Define a function that loads a number of a row of the chunk, or 0, without branches. -#}
{% macro loader(name, array, width, offset="") %}
fn {{ name }}_at(step: u32, column: u32) -> f32 {
    let at = position_of(min(step, last_step())) * call.{{ width }} + min(column, call.{{ width }} - 1u);
    return select(0.0, {{ array }}[{{ offset }}at], exists(step) & (column < call.{{ width }}));
}
{% endmacro %}

{#- Define a function that loads a number of the state before a chunk of the window, or 0. -#}
{% macro state_loader(name, offset="") %}
fn {{ name }}_at(number: u32, key: u32, value: u32) -> f32 {
    let at = state_index(number, min(key, call.keys - 1u), min(value, call.values - 1u));
    return select(0.0, states[{{ offset }}at], (key < call.keys) & (value < call.values));
}
{% endmacro %}

{#- Define the weight of the delta rule at a step. -#}
{% macro beta_loader() %}
fn beta_at(step: u32) -> f32 {
    return gates[call.beta + position_of(min(step, last_step()))];
}
{% endmacro %}

// ----- Decays

{#- Define the logarithm of the decay from before the chunk to after a step, and the decays that are made of it. The
    logarithm falls with the step. Steps beyond the end have the logarithm of the last step. Decays that do not depend
    on the key are kept in workgroup memory. -#}
{% macro gate_loader() %}
fn gate_at(step: u32, key: u32) -> f32 {
    let at = position_of(min(step, last_step()));
    return gates[{{ "at * call.keys + min(key, call.keys - 1u)" if by_key else "at" }}];
}
{% if not by_key %}

// The decays from before the chunk to a step, and from there to the end.
var<workgroup> decays: array<f32, CHUNK>;
var<workgroup> decays_after: array<f32, CHUNK>;
{% endif %}
{% endmacro %}

{#- Compute the decays of a chunk. They can be read after a barrier. -#}
{% macro take_decays() %}
{% if not by_key %}
    if (lane < CHUNK) {
        let gate = gate_at(lane, 0u);
        decays[lane] = exp(gate);
        decays_after[lane] = exp(gate_at(CHUNK - 1u, 0u) - gate);
    }
{% endif %}
{% endmacro %}

{% macro decay(step, key) %}{{ "exp(gate_at(%s, %s))" % (step, key) if by_key else "decays[%s]" % step }}{% endmacro %}
{% macro decay_after(step, key) %}{{ "exp(gate_at(CHUNK - 1u, %s) - gate_at(%s, %s))" % (key, step, key) if by_key else "decays_after[%s]" % step }}{% endmacro %}
{% macro whole_decay(key) %}{{ decay("CHUNK - 1u", key) }}{% endmacro %}

// ----- Products

{#- Define a factor of products as vectors. Each vector is at one index of the inner axis, and has four rows of the left
    factor, or four columns of the right factor. -#}
{% macro factor(name) %}
var<workgroup> {{ name }}: array<vec4<f32>, {{ 32 * 9 }}>;
{% endmacro %}

{#- Fill a factor. `number` is an expression of `outer`, a row of the left factor or a column of the right one, and of
    `inner`. Neighbouring invocations take neighbours along `along`, "inner" or "outer", which should be neighbours in
    memory. -#}
{% macro fill(name, number, along) %}
    for (var vector = lane; vector < 256u; vector += LANES) {
        let inner = vector {{ "% CHUNK" if along == "inner" else "/ 8u" }};
        let quad = vector {{ "/ CHUNK" if along == "inner" else "% 8u" }};
        var numbers: vec4<f32>;
{% for i in range(4) %}
        {
            let outer = 4u * quad + {{ i }}u;
            numbers[{{ i }}] = {{ number }};
        }
{% endfor %}
        {{ name }}[inner * PITCH + quad] = numbers;
    }
{% endmacro %}

{#- Add the product of two factors. -#}
{% macro multiply(sum, right="right") %}
    for (var inner = 0u; inner < CHUNK; inner++) {
        let a = left[inner * PITCH + y];
        let b = {{ right }}[inner * PITCH + x];
        {{ sum }} += mat4x4<f32>(a.x * b, a.y * b, a.z * b, a.w * b);
    }
{% endmacro %}

{#- Put a product into a right factor. The rows of the product become indices of the inner axis. -#}
{% macro put(name, sum) %}
{% for i in range(4) %}
    {{ name }}[(4u * y + {{ i }}u) * PITCH + x] = {{ sum }}[{{ i }}];
{% endfor %}
{% endmacro %}

{#- Begin a loop over the numbers of a factor that a product was put into: `row`, `column`, `number`. Neighbouring
    invocations take neighbouring columns. -#}
{% macro each_number(name) %}
    for (var at = lane; at < CHUNK * CHUNK; at += LANES) {
        let row = at / CHUNK;
        let column = at % CHUNK;
        let number = {{ name }}[row * PITCH + column / 4u][column % 4u];
{%- endmacro %}

{#- Fill both factors and add their product. -#}
{% macro add_product(sum, left_number, left_along, right_number, right_along) %}
{{ fill("left", left_number, left_along) }}
{{ fill("right", right_number, right_along) }}
    workgroupBarrier();
{{ multiply(sum) }}
    workgroupBarrier();
{% endmacro %}

{#- The head of the main function. It gives each workgroup its number. -#}
{% macro main() %}
{% from "shared/main.wgsl" import main as main_head %}
{{ main_head(size=64, invocation="lane") }} {
    let number = workgroup.x + workgroup.y * grid.x;
    let x = lane % 8u;
    let y = lane / 8u;
{% endmacro %}
