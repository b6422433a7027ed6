"""User WGSL in every spelling that the grammar allows: what must be bounded is bounded, or refused.

A program is a list of tokens. Between two of them a spelling puts any blank space, line break or comment of WGSL.
"""

from __future__ import annotations

import random
import re
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from gpuscan.elements import Element, element_of
from gpuscan.errors import OperatorError
from gpuscan.operators.code import combine_code
from gpuscan.operators.operator import wgsl_operator
from gpuscan.operators.user_wgsl import isolate_user_code

LINE_BREAKS = ["\n", "\v", "\f", "\r", "\r\n", "\x85", "\u2028", "\u2029"]
BLANKS = [" ", "\t", "\u200e", "\u200f", *LINE_BREAKS]
SIGNATURE = "fn combine ( a : Element , b : Element ) -> Element {"
ELEMENT = element_of([np.dtype(np.uint32)])

COMMENT_TEXTS = ["", "x", "{", "}", "/*x*/", "loop", "@", "fn f(", "\u0301 é", "'", "// ", " /* /* */ */ "]
BLOCK_COMMENTS = [f"/*{text}{end}*/" for text in COMMENT_TEXTS for end in ("", " ", "\n")]
LINE_COMMENTS = [f"//{text}{end}" for text in ["", "x", "/*", "*/", "{ loop", "·"] for end in LINE_BREAKS]
GAPS = BLANKS + BLOCK_COMMENTS + LINE_COMMENTS
ENDS = ["", *BLANKS, "/**/", "//"]
# Try this number of spellings of each program.
tried = hypothesis.settings(max_examples=max(20, hypothesis.settings().max_examples // 5))
with_seeds = hypothesis.given(seed=st.integers(0, 2**32))


def spell_program(program: str, seed: int) -> str:
    """Return a spelling of a program that is given as tokens between spaces."""
    rng = random.Random(f"{seed} {program}")
    text = ""
    for token in program.split():
        gap = "".join(rng.choices(GAPS, k=rng.choice((0, 0, 1, 1, 2))))
        runs_together = (text[-1:].isalnum() or text[-1:] == "_") and (token[0].isalnum() or token[0] == "_")
        begins_comment = text[-1:] == "/" and token[0] in "/*"
        if not gap:
            gap = " " if runs_together or begins_comment else ""
        elif text[-1:] == "/" and gap[0] == "/":
            gap = " " + gap
        text += gap + token
    return text + rng.choice(ENDS) if program else ""


def shader(source: str, helpers: str, element: Element = ELEMENT) -> str:
    """Return the operator's text as a shader has it, after everything that gpuscan does to it."""
    op = wgsl_operator(source, helpers=helpers, name="mine")
    code = combine_code(op, element, native_int64=True)
    return isolate_user_code(f"alias Element = u32;\nfn state() {{}}\n{code.source}\n", "mine")


def combining(body: str) -> str:
    return f"{SIGNATURE} {body} }}"


# ----- Loops

LOOPS = {
    "loop": "loop { i = i * 3u ; if i == 0u { break ; } }",
    "while": "while i != 1u { i += 2u ; }",
    "while in brackets": "while ( i != ( 1u ) ) { i += 2u ; }",
    "for": "for ( var k = 0u ; k < 4000000000u ; k ++ ) { i += k ; }",
    "for ever": "for ( ; ; ) { i ++ ; }",
    "continuing": "loop { i += 2u ; continuing { break if i == 1u ; } }",
    "continue": "while true { continue ; }",
    "in a loop": "for ( var k = 0u ; k < 99u ; k ++ ) { for ( ; ; ) { i = i + 1u ; } }",
    "in a switch": "switch i { case 0u , 1u { loop { i += 1u ; } } default { while true { } } }",
    "a switch in it": "loop { switch i { default { continue ; } } }",
    "after a template": "let v = array < u32 , 2 > ( 1u , 2u ) ; while v [ 0 ] < v [ 1 ] { i += 1u ; }",
    "in a continuing": "loop { continuing { loop { i = 2u ; } } }",
    "by an index": "var p = array < u32 , 4 > ( ) ; for ( p [ 0 ] = 0u ; p [ i & 3u ] < 9u ; p [ 1 ] ++ ) { }",
}
HELPERS = {
    "fn h ( x : u32 ) -> u32 { var i = x ; LOOP return i ; }": "return h ( a ) + b ;",
    "fn h ( x : ptr < function , u32 > ) { var i = 3u ; LOOP }": "var c = a ; h ( & c ) ; return c + b ;",
    "fn h ( x : u32 ) -> array < u32 , 3 > { var i = x ; LOOP return array < u32 , 3 > ( ) ; }":
        "return h ( a ) [ 0 ] ;",
    "alias U = u32 ; struct S { loops : U } fn h ( x : U ) -> S { var i = x ; LOOP return S ( i ) ; }": (
        "return h ( a ) . loops ;"
    ),
}  # fmt: skip


def assert_counted(text: str, loops: int) -> None:
    """Assert that every loop asks for its count at the start of its body."""
    assert text.count("one_turn_too_many()") == loops
    assert text.count("begin_turns();") == 1
    assert len(re.findall(r"\{ if \(one_turn_too_many\(\)\) \{ return [^;{}]*; \}", text)) == loops


def loops_of(program: str) -> int:
    return sum(token in ("for", "while", "loop") for token in program.split())


@tried
@with_seeds
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_every_loop_is_counted(loop: str, seed: int) -> None:
    program = combining(f"var i = a ; {loop} return i + b ;")
    assert_counted(shader(spell_program(program, seed), ""), loops_of(program))


@tried
@with_seeds
@pytest.mark.parametrize("helper", HELPERS)
def test_every_loop_of_a_helper_is_counted(helper: str, seed: int) -> None:
    helpers = helper.replace("LOOP", list(LOOPS.values())[seed % len(LOOPS)])
    text = shader(spell_program(combining(HELPERS[helper]), seed), spell_program(helpers, seed))
    assert_counted(text, loops_of(helpers))


# ----- What is refused

SIZES = ["20000", "20000u", "20000i", "0x4e20", "0X4E20u", "20000li", "N", "M", "( 20000 )", "200 * 100", "1 << 15"]
SIZES += ["K", "N - 1", "u32 ( 20000 )", "select ( 1 , 20000 , true )", "20000 ,", "- 20000", "2e4", "65536 >> 1"]
CONSTANTS = "const N = 20000 ; const M : u32 = 0x4e20u ; const K = 100 * 200 ;"
REFUSED = {
    "an array": ("", "var p : array < u32 , SIZE > ; return p [ a ] + b ;"),
    "an array in an array": ("", "var p : array < array < u32 , SIZE > , 1 > ; return p [ 0 ] [ a ] + b ;"),
    "an array of vectors": ("", "var p : array < vec4 < f32 > , SIZE > ; return u32 ( p [ a ] . x ) + b ;"),
    "a constructed array": ("", "return array < u32 , SIZE > ( ) [ a ] + b ;"),
    "a constant": ("const X = array < u32 , SIZE > ( ) ;", "return X [ a ] + b ;"),
    "an alias": ("alias A = array < u32 , SIZE > ; alias B = A ;", "var p : B ; return p [ a ] + b ;"),
    "a struct": ("struct S { x : u32 , y : array < u32 , SIZE > , }", "var s : S ; return s . y [ a ] + b ;"),
    "a pointer": ("fn h ( p : ptr < function , array < u32 , SIZE > > ) { }", "return a + b ;"),
    "a parameter": ("fn h ( p : array < u32 , SIZE > ) -> u32 { return p [ 0 ] ; }", "return a + b ;"),
    "a result": ("fn h ( ) -> array < u32 , SIZE > { return array < u32 , SIZE > ( ) ; }", "return h ( ) [ a ] ;"),
}
SHADOWED = "const L = 20000 ; fn h ( ) -> u32 { const L = 1 ; return L ; }"
ALWAYS_REFUSED = {
    "a shadowed constant": (SHADOWED, "var p : array < u32 , L > ; return p [ a ] + b ;"),
    "an array without a type": ("", "let p = array ( a , b ) ; return p [ a & 1u ] ;"),
    "constants that double": (
        "const C0 = array ( 1u , 2u ) ; const C1 = array ( C0 , C0 ) ; const C2 = array ( C1 , C1 ) ;",
        "return C2 [ a & 1u ] [ 0 ] [ 0 ] ;",
    ),
    "copies": (
        "",
        "var p : array < u32 , 250 > ; p [ a & 7u ] = b ; "
        + " ".join(f"var q{i} = p ;" for i in range(40))
        + " return q3 [ b & 7u ] ;",
    ),
    "copies as values": (
        "",
        "var p : array < u32 , 250 > ; p [ a & 7u ] = b ; "
        + " ".join(f"let q{i} = p ;" for i in range(40))
        + " return q3 [ b & 7u ] ;",
    ),
    "calls that copy": (
        "fn h ( p : array < u32 , 200 > , x : u32 ) -> u32 { return p [ x & 7u ] ; }",
        "var p : array < u32 , 200 > ; return " + " + ".join(["h ( p , a )"] * 40) + " ;",
    ),
    "a member with a size": ("struct S { @ size ( 100000000 ) x : u32 , }", "var s : S ; return s . x ;"),
    "a member with an alignment": ("struct S { @ align ( 1048576 ) x : u32 , y : u32 }", "var s : S ; return s . x ;"),
    "private memory": ("var < private > p : u32 ;", "return a + b ;"),
    "shared memory": ("var < workgroup > p : array < u32 , 4 > ;", "return a + b ;"),
    "a binding": ("@ group ( 0 ) @ binding ( 0 ) var < storage > p : array < u32 > ;", "return p [ a ] ;"),
    "an override": ("@ id ( 3 ) override N : u32 = 4 ;", "return a + b ;"),
    "a plain override": ("override N = 4 ;", "return a + b ;"),
    "an extension": ("enable f16 ;", "return a + b ;"),
    "a language feature": ("requires pointer_composite_access ;", "return a + b ;"),
    "a diagnostic": ("diagnostic ( off , derivative_uniformity ) ;", "return a + b ;"),
    "a diagnostic of a loop": ("", "@ diagnostic ( off , x ) loop { } return a + b ;"),
    "an entry point": ("@ compute @ workgroup_size ( 1 ) fn main ( ) { }", "return a + b ;"),
    "a barrier": ("", "workgroupBarrier ( ) ; return a + b ;"),
    "an atomic": ("", "atomicAdd ( & state , 1u ) ; return a + b ;"),
    "a subgroup": ("", "return a + subgroupAdd ( b ) ;"),
    "itself": ("fn f ( x : u32 ) -> u32 { return g ( x ) ; } fn g ( x : u32 ) -> u32 { return f ( x ) ; }",
               "return f ( a ) ;"),
    "its name": ("alias Element = array < u32 , 9 > ;", "return a + b ;"),
    "a function in a function": ("", "fn h ( ) { loop { } } return a + b ;"),
    "signs": ("", "return a + " + "~ " * 40 + "b ;"),
    "types": ("", "var p : " + "ptr < function , " * 70 + "u32" + " >" * 70 + " ; return a + b ;"),
    "vectors": ("", "let p = " + "vec2 < " * 70 + "u32" + " >" * 70 + " ( ) ; return a + b ;"),
    "brackets": ("", "return a + " + "( " * 70 + "b" + " )" * 70 + " ;"),
}  # fmt: skip


def assert_refused(source: str, helpers: str) -> None:
    with pytest.raises(OperatorError, match="the WGSL of the operator 'mine'"):
        shader(source, helpers)


@tried
@with_seeds
@pytest.mark.parametrize(("helpers", "body"), REFUSED.values(), ids=REFUSED.keys())
def test_a_huge_array_is_refused_however_its_size_is_written(helpers: str, body: str, seed: int) -> None:
    size = SIZES[seed % len(SIZES)]
    helpers = spell_program(f"{CONSTANTS} {helpers}".replace("SIZE", size), seed)
    assert_refused(spell_program(combining(body.replace("SIZE", size)), seed), helpers)


@tried
@with_seeds
@pytest.mark.parametrize(("helpers", "body"), ALWAYS_REFUSED.values(), ids=ALWAYS_REFUSED.keys())
def test_what_an_operator_may_not_do_is_refused(helpers: str, body: str, seed: int) -> None:
    assert_refused(spell_program(combining(body), seed), spell_program(helpers, seed))


ODD_LETTERS = [
    "é",
    "\u0301",
    "·",
    "λ",
    "١",
    "\u202e",
    "\ufeff",
    "\u00a0",
    "\u2003",
    "\x00",
    "\x1c",
    "\x7f",
    "\U0001d7d9",
]


@pytest.mark.parametrize("letter", ODD_LETTERS, ids=ascii)
def test_characters_outside_ascii_are_refused_outside_comments(letter: str) -> None:
    """Assert it, since compilers and Python disagree on which of them are letters, digits and blank space."""
    body = "return a + b ;"
    for source, helpers in [
        (combining(body), f"fn h{letter}(x: u32) -> u32 {{ var i = x; loop {{ i = i * 3u; }} return i; }}"),
        (combining(body), f"fn{letter}h(x: u32) -> u32 {{ return x; }}"),
        (combining(f"var p : array{letter}<u32, 20000> ; {body}"), ""),
        (letter + combining(body), ""),
    ]:
        assert_refused(source, helpers)
    assert "return a + b" in shader(f"// {letter}\n{combining(body)} /* {letter} */", "")


def test_the_message_names_the_character_and_its_line() -> None:
    with pytest.raises(
        OperatorError, match=r"the character '\\u0301' in line 2, outside comments; write names in ASCII"
    ):
        shader(combining("return a + b ;"), "// \u0301\rfn he\u0301(x: u32) -> u32 { return x; }")


# ----- What is taken

ALLOWED = {
    "a sum": ("", "return a + b ;"),
    "names of gpuscan": ("fn state ( x : u32 ) -> u32 { return x ; }",
                         "let grid = 3u ; return state ( a ) + b - grid ;"),
    "a table": (
        "const N = 4 ; const T = array < u32 , N > ( 1u , 2u , 3u , 4u , ) ; alias U = u32 ;",
        "let i : U = a & 3u ; return T [ i ] + b ;",
    ),
    "a struct": ("struct S { state : u32 , b : vec2 < u32 > , }",
                 "var s = S ( a , vec2u ( b ) ) ; return s . state + s . b . x ;"),
    "comparisons": ("", "return select ( a , b , a < b && b > a || a << 1u >= b >> 1u ) ;"),
    "many comparisons": ("", "return select ( a , b , " + "a < b && " * 90 + "vec2 < u32 > ( a ) . x > b ) ;"),
    "an assert": ("const_assert 1 < 2 ;", "return a % b / 1u ;"),
    "an array": ("",
                 "var p : array < vec4 < f32 > , 64 > ; p [ 1 ] . x = 0x1.8p3f ; return u32 ( p [ 0 ] . x + .5 ) ;"),
    "nested arrays": ("",
                      "var p = array < array < u32 , 8 > , 8u > ( ) ; p [ 0 ] [ a & 7u ] = b ; return p [ 0 ] [ 0 ] ;"),
    "a pointer": ("fn h ( x : ptr < function , u32 > ) { * x += 1u ; }", "var c = a ; h ( & c ) ; return c + b ;"),
}  # fmt: skip


@tried
@with_seeds
@pytest.mark.parametrize(("helpers", "body"), ALLOWED.values(), ids=ALLOWED.keys())
def test_a_spelling_means_the_same_as_another(helpers: str, body: str, seed: int) -> None:
    def words(text: str) -> list[str]:
        return " ".join(line for line in text.split("\n") if not line.startswith("//")).replace(" ", "").split()

    plain = shader(combining(body), helpers)
    assert words(shader(spell_program(combining(body), seed), spell_program(helpers, seed))) == words(plain)
    assert "one_turn" not in plain


def test_lines_keep_their_numbers() -> None:
    source = "// one\r\n/* two\u2028 three */ \v" + combining("let x = a ; \x85 return x + b ;")
    lines = shader(source, "").split("\n")
    start = next(i for i, line in enumerate(lines) if line.endswith("line 1 follows")) + 1
    assert [bool(line.strip("/ ")) for line in lines[start : start + 5]] == [False, False, False, True, True]
    assert lines[start + 4].strip() == "return x + b ; }"


@pytest.mark.parametrize("text", ["/*", "/* /* */", "return 1loop;", "0xfor", "1.5e3x"])
def test_what_is_no_wgsl(text: str) -> None:
    assert_refused(combining("return a + b ;") + text, "")


def test_many_variables_of_a_wide_element_are_refused() -> None:
    """Assert that the size of an element is checked when the operator meets an array."""
    wide = element_of([np.dtype(np.uint32)], shapes=[(256,)])
    for declared in ("var q{i} : Element ;", "var q{i} = Element ( ) ;", "var q{i} = a ;", "let q{i} = a ;"):
        body = " ".join(declared.format(i=i) for i in range(40)) + " return q3 ;"
        assert "q39" in shader(combining(body), "")
        with pytest.raises(OperatorError, match="bytes in arrays and copies"):
            shader(combining(body), "", wide)
    assert "a [ 7 ]" in shader(combining("let x = a [ 7 ] ; var c = a ; c [ 3 ] = x ; return c ;"), "", wide)


def test_variables_without_a_type_are_counted_by_what_they_may_copy() -> None:
    """Assert that numbers, results of functions and entries of arrays are no copies of an array."""
    table = "var p : array < u32 , 250 > ; p [ a & 7u ] = b ;"
    plain: dict[str, Any] = {"0u": "", "a + b": "", "p [ 3 ]": "", "min ( a , b )": "", "h ( a )": ""}
    for value in plain:
        body = table + " ".join(f"var q{i} = {value} ;" for i in range(40)) + " return q3 + p [ b & 7u ] ;"
        assert "q39" in shader(combining(body), "fn h ( x : u32 ) -> u32 { return x ; }")
    for value in ["p", "( p )", "* & p", "h ( a )"]:
        body = table + " ".join(f"var q{i} = {value} ;" for i in range(40)) + " return q3 [ b & 7u ] ;"
        helper = "fn h ( x : u32 ) -> array < u32 , 250 > { return array < u32 , 250 > ( ) ; }"
        assert_refused(combining(body), helper)
