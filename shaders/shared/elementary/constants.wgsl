{#- Written by script/polynomials.py; see there. -#}
{#- (exp(r) - 1 - r) / r^2 for |r| <= 0.36 -#}
{%- set EXP = (1073741828, 357913942, 89477981, 17895641, 2992987, 427240) -%}
{#- (log(1 + r) - r + r^2 / 2) / r^3 for |r| <= 1/8, in g = 4 r -#}
{%- set LOG = (1431655765, -268435502, 53687102, -11183346, 2396412, -535946, 119159) -%}
{#- the same on floats, in u = r + 9/64 for 0.0046 <= u <= 0.2657, with alternating signs -#}
{%- set LOG_TAIL_FLOATS = ("0.37297186f", "0.318011f", "0.29133376f", "0.2756029f", "0.24161825f", "0.13541831f") -%}
{#- (r - log(1 + r)) / r^2 on floats, in u = r + 5/16 for 0 <= u <= 11/16, with alternating signs -#}
{%- set LOG_CURVE = ("0.6368609f", "0.578631f", "0.6074551f", "0.6858859f", "0.7867755f", "0.83276f", "0.70109504f",
    "0.38635555f", "0.09954908f") -%}
{#- log(2) / 2^23, -log(13/16) and log(13/10) as sums of two floats with few bits -#}
{%- set LN2_FLOATS, LOG_16_13, LOG_13_10 = ("0.00000008262941f", "0.00000000000017030821f"), ("0.2076416f",
    "-0.000002236804f"), ("0.26235962f", "0.0000046453206f") -%}
{#- (exp(r) - 1 - r) / r^2 on floats for -0.43 <= r <= 0.44 -#}
{%- set EXP_FLOATS = ("0.5f", "0.16666669f", "0.041666154f", "0.008332968f", "0.0013962102f", "0.00020054511f") -%}
{#- the same in v = r + 7/16 for 0.03 <= v <= 0.85 -#}
{%- set EXP_RISE_FLOATS = ("0.4344086f", "0.13456327f", "0.03216068f", "0.006287417f", "0.00093781034f",
    "0.00021003326f") -%}
{#- the same for -0.4 <= r <= 0.41, with fewer terms -#}
{%- set EXP_FLOATS_5 = ("0.50000006f", "0.16666648f", "0.04166464f", "0.00835532f", "0.0013758419f") -%}
{#- (2^f - 1) / f - 1/2 on floats for -0.5 <= f <= 0.51 -#}
{%- set EXP2_FLOATS = ("0.19314721f", "0.2402265f", "0.055503156f", "0.009618096f", "0.0013404868f", "0.0001544702f")
    -%}
{#- (cosh(r) - 1) / g for g = r^2 <= 0.17 and (sinh(r) / r - 1) / g for g <= 0.31, both on floats -#}
{%- set COSH_FLOATS, SINH_FLOATS = ("0.5f", "0.041665867f", "0.0013970094f"), ("0.16666669f", "0.008333037f",
    "0.00020006017f") -%}
{#- (1 - tanh(x) / x) / g on floats for g = x^2 <= 0.3025, with alternating signs -#}
{%- set TANH_FLOATS = ("0.3333332f", "0.13332637f", "0.053856846f", "0.021088265f", "0.0062955413f") -%}
{#- (r - 1 + exp(-r)) / r^2 on floats for 0 <= r <= log(2), with alternating signs -#}
{%- set EXP_FALL_FLOATS = ("0.499999f", "0.16664945f", "0.041564275f", "0.008054366f", "0.0010257808f") -%}
{#- 2 log2(e), a little less -#}
{%- set TWO_LOG2_E = "2.8853893f" -%}
{#- log(2) as the sum of two floats with 16 bits -#}
{%- set LN2_SHORT = ("0.69314575f", "0.0000014286488f") -%}
{#- 1 / (1/2 + t) for 0 <= t <= 1/6, roughly and from below, with alternating signs -#}
{%- set RECIPROCAL_FLOATS = ("1.9956055f", "3.8310547f", "5.1035156f") -%}
{#- log2(e) with 12 bits -#}
{%- set LOG2_E_ROUGH = "1.4428711f" -%}
{#- 1 - log(1 + w) / w for 0 <= w <= 1, in g = w - 1/2 -#}
{%- set LOG1P = (812048538, 1239214510, -569554590, 290716127, -157244007, 88353427, -50885725, 28965709, -17230081,
    13977299, -8532797) -%}
{#- (1 - sin(r) / r) / g for g = r^2 / 2 <= 0.31 -#}
{%- set SIN = (1431655765, -143165576, 6817407, -189363, 3409) -%}
{#- (g - 1 + cos(r)) / g^2 for g = r^2 / 2 <= 0.31 -#}
{%- set COS = (715827883, -47721859, 1704352, -37873, 569) -%}
{#- (1 - sin(r) / r) / g on floats for g = r^2 <= 0.62, with alternating signs -#}
{%- set SIN_FLOATS = ("0.16666667f", "0.00833338f", "0.00019853348f", "0.0000028355037f") -%}
{#- 2 / pi, pi / 2 as the sum of four floats, three of them with 11 bits, and the sum of the last two -#}
{%- set TWO_OVER_PI_FLOAT, HALF_PI, HALF_PI_END = "0.63661975f", ("1.5703125f", "0.00048398972f", "-0.00000016298145f",
    "0.000000000060771006f"), "-0.00000016292068f" -%}
{#- (1 - arctan(t) / t) / g with alternating signs and (arcsin(t) / t - 1) / g for g = t^2 <= 1/4, on floats -#}
{%- set ARCTAN_FLOATS, ARCSIN_FLOATS = ("0.33333236f", "0.19994286f", "0.14175655f", "0.101627626f", "0.051365804f"),
    ("0.16666754f", "0.07495252f", "0.045476016f", "0.02415235f", "0.04221114f") -%}
{#- pi / 4 as the sum of two floats with few bits, and the bits of pi / 2 and pi -#}
{%- set EIGHTH_TURN, HALF_TURNS_BITS = ("0.7853985f", "-0.0000003198789f"), ("0x3fc90fdbu", "0x40490fdbu") -%}
{#- erf(x) / x - 1 in x^2 to 0.85, from there to 4 (log(1 - erf(c + u)) - d) / u, on floats, c and d -#}
{%- set ERF_FLOATS, ERFC_FLOATS, ERFC_CENTER, ERFC_LOG = ("0.12837917f", "-0.3761263f", "0.11283624f", "-0.026855586f",
    "0.0051919464f", "-0.0008043964f", "0.00007971628f"), ("-2.6579201f", "-0.8444998f", "-0.04111375f", "0.009924379f",
    "-0.0019704523f", "0.0002694344f", "-0.000016635515f"), "1.01123046875f", "-1.8793487548828125f" -%}
{#- (tan(r) / r - 1) / g on floats for g = r^2 <= 0.62 -#}
{%- set TAN_FLOATS = ("0.33333352f", "0.13332583f", "0.054068655f", "0.021238582f", "0.010945622f", "-0.00004628099f",
    "0.004441872f") -%}
{#- (arctanh(t) / t - 1) / g and (1 - arcsinh(t) / t) / g with alternating signs for g = t^2 <= 0.09, on floats -#}
{%- set ARCTANH_FLOATS, ARCSINH_FLOATS = ("0.3333328f", "0.20005563f", "0.14104298f", "0.1339621f"), ("0.16666658f",
    "0.074990705f", "0.044323593f", "0.025987396f") -%}
{#- 2 / sqrt(pi) as a significand -#}
{%- set TWO_OVER_ROOT_PI = "0x906eba82u" -%}
{#- 1 / sqrt(3/2 + g) for |g| <= 1/2 -#}
{%- set ROOT = (876706528, -291607862, 145733119, -90980266, 53357754) -%}
{#- 1 / (3/2 + g) for |g| <= 1/2 -#}
{%- set RECIPROCAL = (715864403, -477242935, 315532519, -210355013, 168284010, -112189340) -%}
{#- sqrt(1/2) with 32 fractional bits -#}
{%- set HALF_ROOT = "0xb504f334u" -%}
{#- log(2) with 32 fractional bits, and the 16 bits below -#}
{%- set LN2 = ("0xb17217f7u", "53711i") -%}
{#- log(2) with 56 fractional bits; the low word is signed -#}
{%- set LN2_WORDS = ("-137244806i", "11629080i") -%}
{#- -log(5/4) with 56 fractional bits -#}
{%- set MINUS_LOG_5_4 = ("0x70cacbbdu", "0xffc6e010u") -%}
{#- log(32/25) with 56 fractional bits -#}
{%- set LOG_32_25 = ("0xd96766f3u", "0x3f3238u") -%}
{#- log(2) with 31 fractional bits -#}
{%- set LN2_SIGNED = "1488522236i" -%}
{#- pi / 2 and pi / 4 as significands -#}
{%- set PI = "0xc90fdaa2u" -%}
{#- the first bits of 2 / pi after the point -#}
{%- set TWO_OVER_PI = ("0xa2f9836eu", "0x4e441529u", "0xfc2757d1u", "0xf534ddc0u", "0xdb629599u", "0x3c439041u",
    "0xfe5163abu", "0xdebbc561u") -%}
{#- log2(e) and log10(e): 12 bits, the rest, and all -#}
{%- set LOG2_E_FLOATS, LOG10_E_FLOATS = ("1.4428711f", "-0.00017605285f", "1.442695f"), ("0.43432617f",
    "-0.00003168997f", "0.4342945f") -%}
{#- log2(e), to choose a power of two by -#}
{%- set LOG2_E_FLOAT = "1.4426950f" -%}
