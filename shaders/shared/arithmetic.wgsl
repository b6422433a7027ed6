{#- Arithmetic with NumPy's meaning where WGSL has none or another one: the functions that traced operators call.
    Comes in: helpers, the names of those to render. A function is named after its form and operation
    (gpuscan/operators/wgsl_arithmetic.py); the integers come first, then integers of two words, then floats. -#}
{% include "shared/arithmetic_integers.wgsl" %}
{% include "shared/arithmetic_wide.wgsl" %}
{% include "shared/elementary.wgsl" %}
{% include "shared/arithmetic_floats.wgsl" %}
{% include "shared/arithmetic_fixed.wgsl" %}
