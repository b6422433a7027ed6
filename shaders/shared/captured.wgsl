{#- The float and complex constants of the user's functions, in a buffer of each call, so that functions with other
    constants share their shaders, and compilers do not simplify what is computed with them: as literals, some make
    x / 0.0 zero, 0.0 / x zero for every x, and x * 1e308 * 10.0 an infinity of zero times. float64 constants are words:
    a float32 of such bits might not keep them. Values: spec.captured_functions. -#}
{% if spec.captured_functions %}

struct Captured {
{% for name, code in spec.captured_functions %}
{% if code.captured_floats %}
    {{ name }}: array<vec4<f32>, {{ code.captured_floats }}>,
{% endif %}
{% if code.captured_words %}
    {{ name }}_words: array<vec4<u32>, {{ code.captured_words }}>,
{% endif %}
{% endfor %}
}
@group(0) @binding({{ kernel.binding_of("captured") }}) var<uniform> captured: Captured;
{% endif %}
