"""Sizes as expressions: computed like Python's own, and nothing else is ever accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import CHARACTERS
from tilewright.rungs.own.expression import LARGEST, Expression, HeaderError, Place

HERE = Place("mine.cl", 7, "grid")
NAMES = {"A": 5, "B": 3, "TILE": 16, "ZERO": 0}


def value(text, **names):
    return Expression(text, HERE).value({**NAMES, **names})


def ceil_div(a, b):
    return -(-a // b)


leaves = st.one_of(st.integers(0, 99).map(str), st.sampled_from(sorted(NAMES)))


def grown(inner):
    pairs = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", "==", "!="]), inner)
        .map(lambda parts: f"({' '.join(parts)})"),
        st.tuples(st.sampled_from(["min", "max", "ceil_div"]), pairs)
        .map(lambda call: f"{call[0]}({call[1][0]}, {call[1][1]})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} else {p[2]})"),
        pairs.map(lambda pair: f"(1 if {pair[0]} and not {pair[1]} or -{pair[0]} < 4 else 2)"),
    )  # fmt: skip


@given(st.recursive(leaves, grown, max_leaves=8))
def test_expressions_are_computed_like_python_s(text):
    scope = {"__builtins__": {}, "min": min, "max": max, "ceil_div": ceil_div, **NAMES}
    try:
        expected = eval(text, scope)
    except ZeroDivisionError:
        with pytest.raises(HeaderError, match=r"^mine.cl:7: grid: division by zero in "):
            value(text)
        return
    assert value(text) == expected


@given(st.text(CHARACTERS, max_size=40))
def test_any_text_is_a_size_or_a_complaint_in_one_line(text):
    try:
        found = Expression(text, HERE)
        found.check_names(NAMES)
        assert isinstance(found.value(NAMES), int)
    except HeaderError as error:
        assert str(error).startswith("mine.cl:7: grid: ")
        assert "\n" not in str(error)


def test_rounding_is_down_and_up():
    assert value("-7 // 2") == -4
    assert value("ceil_div(A, B)") == 2
    assert value("ceil_div(-7, 2)") == -3


def test_truth_is_one():
    assert value("A > B > 2") == 1
    assert value("A > B and ZERO") == 0
    assert value("not ZERO or 1 // ZERO") == 1  # what is decided already is not computed
    assert value("TILE if A == 5 else 1 // ZERO") == 16


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("A / B", "// divides"),
        ("A ** B", "no operator of ours"),
        ("A << 3", "no operator of ours"),
        ("~A", "no operator of ours"),
        ("+A", "no operator of ours"),
        ("A in B", "no comparison"),
        ("A is B", "no comparison"),
        ("1.5 * A", "1.5 is not a whole number"),
        ("'A'", "'A' is not a whole number"),
        ("True", "True is not a whole number"),
        ("A.real", "'A.real' is not of numbers"),
        ("A[0]", "'A[0]' is not of numbers"),
        ("[A]", "'[A]' is not of numbers"),
        ("(lambda: 1)()", "is not of numbers"),
        ("__import__('os')", "unknown function '__import__'"),
        ("open(1, 2)", "unknown function 'open'"),
        ("min(A)", "min takes two or more sizes"),
        ("ceil_div(A, B, 2)", "ceil_div takes two sizes"),
        ("max(*A, B)", "max takes two or more sizes"),
        ("min(a=A, b=B)", "is not of numbers"),
        ("(A := 3)", "is not of numbers"),
        ("A +", "not an expression"),
        ("", "not an expression"),
        ("A\nB", "not an expression"),
        ("A; B", "not an expression"),
        ("(" * 240 + "A" + ")" * 240, "not an expression"),
        ("-" * 450 + "A", "at most 200 parts"),
        ("A" * 501, "at most 500 characters"),
        ("+".join("A" * 150), "at most 200 parts"),
        (f"{LARGEST + 1}", "larger than any size"),
        ("9" * 400, "larger than any size"),
        ("TILES", "unknown size 'TILES'; did you mean 'TILE'?"),
        ("min", "unknown size 'min'"),
        ("A // (B - 3)", "division by zero"),
        ("A % ZERO", "division by zero"),
        ("ceil_div(A, ZERO)", "division by zero"),
        (f"{LARGEST} * 2", "larger than any size"),
        (f"-{LARGEST} - 2", "larger than any size"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused_in_one_line(text, problem):
    with pytest.raises(HeaderError) as caught:
        expression = Expression(text, HERE)
        expression.check_names(NAMES)
        expression.value(NAMES)
    message = str(caught.value)
    assert message.startswith("mine.cl:7: grid: ")
    assert problem in message
    assert len(message) < 250 and "\n" not in message


def test_a_size_must_be_large_enough():
    with pytest.raises(HeaderError, match=r"is -2, and must be at least 1 in 'B - A'"):
        Expression("B - A", HERE).at_least(1, NAMES)
