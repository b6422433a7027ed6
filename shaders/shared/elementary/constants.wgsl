{#- Written by script/polynomials.py; see there. -#}
{#- (exp(r) - 1 - r) / r^2 for |r| <= 0.36 -#}
{%- set EXP = (1073741828, 357913942, 89477981, 17895641, 2992987, 427240) -%}
{#- (log(1 + r) - r + r^2 / 2) / r^3 for |r| <= 1/8, in g = 4 r -#}
{%- set LOG = (1431655765, -268435502, 53687102, -11183346, 2396412, -535946, 119159) -%}
{#- 1 - log(1 + w) / w for 0 <= w <= 1, in g = w - 1/2 -#}
{%- set LOG1P = (812048538, 1239214454, -569554670, 290720580, -157241428, 88253185, -50914732, 29885589, -17097041,
    10287192, -8746207, 5379813) -%}
{#- (1 - sin(r) / r) / g for g = r^2 / 2 <= 0.31 -#}
{%- set SIN = (1431655765, -143165576, 6817407, -189363, 3409) -%}
{#- (g - 1 + cos(r)) / g^2 for g = r^2 / 2 <= 0.31 -#}
{%- set COS = (715827883, -47721859, 1704352, -37873, 569) -%}
{#- (1 - arctan(t) / t) / g for g = t^2 <= 0.172 -#}
{%- set ARCTAN = (1431655765, -858993457, 613566488, -477205933, 390156661, -326600069, 258762965, -141355593) -%}
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
{#- the tangent of pi / 8 as a significand of exponent -2 -#}
{%- set TAN_PI_8 = "0xd413ccd0u" -%}
{#- the first bits of 2 / pi after the point -#}
{%- set TWO_OVER_PI = ("0xa2f9836eu", "0x4e441529u", "0xfc2757d1u", "0xf534ddc0u", "0xdb629599u", "0x3c439041u",
    "0xfe5163abu", "0xdebbc561u") -%}
{#- log2(e), log10(e) and log10(2) as significands of exponent 0, -2 and -2 -#}
{%- set LOG2_E, LOG10_E, LOG10_2 = "0xb8aa3b29u", "0xde5bd8a9u", "0x9a209a85u" -%}
{#- 1/3 with 32 fractional bits -#}
{%- set THIRD = "0x55555555u" -%}
