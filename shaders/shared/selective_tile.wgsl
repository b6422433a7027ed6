{#- A tile of a selective scan: TIMES steps of the inputs of a workgroup's channels, and of the weights that vary. It
    goes through registers, so that the next tile is loaded while one is computed.
    Values: channels, times, states; invocations: of a workgroup, which divide the numbers of a tile of an input.
    Arguments: inputs: for each input, its name and the expression of its number `at` an index of (batch, group,
    channel, time); varying: the weights that depend on time, and not on the channel. -#}
{% set loads_each = channels * times // invocations %}
{% set quads = (times * states // 4 + invocations - 1) // invocations %}

{% macro declare_tile(inputs, varying) %}
{% for name in inputs %}
var<workgroup> tile_{{ name }}: array<f32, {{ channels * (times + 1) }}>;
{% endfor %}
{% for name in varying %}
var<workgroup> tile_{{ name }}: array<vec4<f32>, {{ times * states // 4 }}>;
{% endfor %}
{% endmacro %}

{% macro declare_next(inputs, varying) %}
{% for name in inputs %}
{% for i in range(loads_each) %}
    var next_{{ name }}{{ i }}: f32;
{% endfor %}
{% endfor %}
{% for name in varying %}
{% for i in range(quads) %}
    var next_{{ name }}{{ i }}: vec4<f32>;
{% endfor %}
{% endfor %}
{% endmacro %}

{#- Load a tile that begins at `start` into registers, without branches. Neighbouring invocations load neighbouring
    times. Inputs at `end` and beyond, and inputs of channels that do not exist, are 0. -#}
{% macro load_tile(inputs, varying, start, end) %}
{% for i in range(loads_each) %}
    {
        let row = (lane + {{ i * invocations }}u) / TIMES;
        let time = {{ start }} + (lane + {{ i * invocations }}u) % TIMES;
        let exists = (row < position.present) & (time < {{ end }});
        let at = (position.first_row + min(row, position.present - 1u)) * call.length + min(time, {{ end }} - 1u);
{% for name, source in inputs.items() %}
        next_{{ name }}{{ i }} = select(0.0, {{ source }}, exists);
{% endfor %}
    }
{% endfor %}
{% for name in varying %}
{% for i in range(quads) %}
    next_{{ name }}{{ i }} = {{ name }}_of({{ name }}_begins, (lane + {{ i * invocations }}u) / TIMES, min({{ start }} + (lane + {{ i * invocations }}u) % TIMES, {{ end }} - 1u));
{% endfor %}
{% endfor %}
{% endmacro %}

{#- Put the loaded tile into workgroup memory, where all invocations read it after a barrier. -#}
{% macro share_tile(inputs, varying) %}
{% for i in range(loads_each) %}
{% for name in inputs %}
        tile_{{ name }}[(lane + {{ i * invocations }}u) / TIMES * PITCH + (lane + {{ i * invocations }}u) % TIMES] = next_{{ name }}{{ i }};
{% endfor %}
{% endfor %}
{% for i in range(quads if varying else 0) %}
        if (lane + {{ i * invocations }}u < TIMES * QUADS) {
            let at = (lane + {{ i * invocations }}u) % TIMES * QUADS + (lane + {{ i * invocations }}u) / TIMES;
{% for name in varying %}
            tile_{{ name }}[at] = next_{{ name }}{{ i }};
{% endfor %}
        }
{% endfor %}
{% endmacro %}
