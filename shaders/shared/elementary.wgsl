{#- Elementary functions of float32 and complex64, in steps that give the same bits on every device.
    Comes in: helpers; native_int64, True if the shader may have 64-bit integers, which only make it faster.
    WGSL leaves the accuracy of its own functions open, and compilers fuse, reorder and simplify steps on floats.
    Integer arithmetic is exact on every device. So are steps on floats whose results have no more bits than a float, in
    whatever order they run. Any other result of a step on floats passes through f32_clamped before the next step, if it
    is from 0 to 1, which costs GPUs nothing. Else it passes through f32_sealed, with a word that is always 0. The word
    comes from the low bits of a small whole number. gpuscan/reference/elementary.py runs these texts on NumPy, with the
    same bits.

    A *scaled* number is a positive number as vec2<u32>(significand, exponent): significand / 2^31 * 2^exponent, with
    the leading bit of the significand at 31. The exponent is in two's complement. The significand of zero is 0.
    *Words* are a fixed-point number of 64 bits as vec2<u32>(low, high).

    The functions are written in straight lines: `let`, `return` and at most one early return. i32 is shifted by
    constants alone.
    f32_<name>_odd rounds to odd: it cuts the number and sets the last bit if a cut bit was set. A 16-bit float that is
    rounded from it is rounded as if from the exact number (Boldo and Melquiond, 2008).

    Cody and Waite, "Software Manual for the Elementary Functions" (1980); Payne and Hanek (1983); Muller, "Elementary
    Functions" (2016). script/polynomials.py makes the constants. -#}
{% include "shared/elementary/numbers.wgsl" %}
{% include "shared/elementary/parts.wgsl" %}
{% include "shared/elementary/angles.wgsl" %}
{% include "shared/elementary/functions.wgsl" %}
{% include "shared/elementary/roots.wgsl" %}
{% include "shared/elementary/complex.wgsl" %}
