{#- The float constants of the user's functions, in a buffer of each call, so that functions with other constants share
    their shaders. Values: spec.captured_functions. -#}
{% if spec.captured_functions %}

struct Captured {
{% for name, code in spec.captured_functions %}
    {{ name }}: array<vec4<f32>, {{ (code.captured_count + 3) // 4 }}>,
{% endfor %}
}
@group(0) @binding({{ kernel.binding_of("captured") }}) var<uniform> captured: Captured;
{% endif %}
