"""Sizes as people write them: whole-number expressions in terms of a layer's sizes.

`ceil_div(OUT_X, TILE) * FILTERS` stands in the header of a kernel file. It is parsed by Python's
own parser and computed here, by the few rules below: nothing of it is ever executed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from tilewright.errors import TilewrightError, unknown

LONGEST = 500  # characters of an expression
MOST_PARTS = 200
LARGEST = 2**63 - 1

BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARE: dict[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "ceil_div": lambda a, b: -(-a // b),
}


Computed = Callable[[Mapping[str, int]], int]


class HeaderError(TilewrightError):
    """A kernel file that cannot be read, or whose header says what cannot be: file and line."""


@dataclass(frozen=True)
class Place:
    """Where something stands in a file, and what it is; what stands in no file has no line."""

    file: str
    line: int | None
    what: str

    def error(self, problem: str) -> HeaderError:
        what = f"{self.what}: " if self.what else ""
        line = "" if self.line is None else f":{self.line}"
        return HeaderError(f"{self.file}{line}: {what}{problem}")


@dataclass(frozen=True)
class Expression:
    """A whole number that depends on names. True is 1, false is 0."""

    text: str
    place: Place

    def __post_init__(self) -> None:
        """Refuse all that is not an expression of this kind."""
        if len(self.text) > LONGEST:
            raise self.place.error(f"an expression has at most {LONGEST} characters")
        parts = list(ast.walk(self.tree))
        if len(parts) > MOST_PARTS:
            raise self.place.error(f"an expression has at most {MOST_PARTS} parts")
        for part in parts:
            if problem := _problem(part):
                raise self._error(problem)

    @cached_property
    def tree(self) -> ast.expr:
        try:
            return ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            why = getattr(error, "msg", None) or "too deep"
            raise self._error(f"not an expression ({why})") from error

    @cached_property
    def computed(self) -> Computed:
        """The expression as a function: tiles are chosen among thousands."""
        return _function(self.tree)

    @cached_property
    def names(self) -> set[str]:
        called = {id(part.func) for part in ast.walk(self.tree) if isinstance(part, ast.Call)}
        return {
            part.id
            for part in ast.walk(self.tree)
            if isinstance(part, ast.Name) and id(part) not in called
        }

    def check_names(self, known: Mapping[str, object] | set[str]) -> None:
        for name in sorted(self.names - set(known)):
            raise self._error(str(unknown("size", name, sorted(known))))

    def value(self, names: Mapping[str, int]) -> int:
        try:
            return self.computed(names)
        except ZeroDivisionError:
            raise self._error("division by zero") from None
        except OverflowError:
            raise self._error("larger than any size can be (64 bits)") from None

    def at_least(self, least: int, names: Mapping[str, int]) -> int:
        value = self.value(names)
        if value < least:
            raise self._error(f"is {value:,}, and must be at least {least}")
        return value

    def _error(self, problem: str) -> HeaderError:
        shown = self.text if len(self.text) <= 60 else f"{self.text[:60]}..."
        return self.place.error(f"{problem} in {shown!r}")


def _function(part: ast.expr) -> Computed:
    match part:
        case ast.Constant(value=int(found)):
            return lambda names: found
        case ast.Name(id=name):
            return itemgetter(name)
        case ast.BinOp(left=left, op=op, right=right):
            binary, a, b = BINARY[type(op)], _function(left), _function(right)
            return lambda names: _bounded(binary(a(names), b(names)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _function(operand)
            return lambda names: -value(names)
        case ast.UnaryOp(operand=operand):
            value = _function(operand)
            return lambda names: int(not value(names))
        case ast.BoolOp(op=op, values=values):
            every, parts = all if isinstance(op, ast.And) else any, [_function(v) for v in values]
            return lambda names: int(every(each(names) for each in parts))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            sides = [_function(side) for side in (left, *comparators)]
            tests = [COMPARE[type(op)] for op in ops]
            return lambda names: _compared(tests, [side(names) for side in sides])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            chosen, a, b = _function(test), _function(body), _function(orelse)
            return lambda names: a(names) if chosen(names) else b(names)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            function, given = FUNCTIONS[name], [_function(each) for each in arguments]
            return lambda names: function(*(each(names) for each in given))
        case _:
            raise AssertionError(part)  # refused when it was read


def _bounded(value: int) -> int:
    if abs(value) > LARGEST:
        raise OverflowError
    return value


def _compared(tests: list[Callable[[int, int], bool]], sides: list[int]) -> int:
    return int(all(test(a, b) for test, a, b in zip(tests, sides, sides[1:], strict=False)))


def _problem(part: ast.AST) -> str | None:
    """Why a part of an expression is none of ours, or None."""
    match part:
        case ast.Constant(value=found):
            if type(found) is not int:
                return f"{found!r:.20} is not a whole number"
            return None if found <= LARGEST else "a number larger than any size can be (64 bits)"
        case ast.BinOp(op=ast.Div()):
            return "sizes are whole numbers: // divides them and rounds down, ceil_div(a, b) up;"
        case ast.BinOp(op=op):
            return None if type(op) in BINARY else "no operator of ours (+ - * // %)"
        case ast.UnaryOp(op=op):
            return None if isinstance(op, ast.USub | ast.Not) else "no operator of ours (- not)"
        case ast.Compare(ops=ops):
            return None if all(type(op) in COMPARE for op in ops) else "no comparison of sizes"
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            if name not in FUNCTIONS:
                return f"{unknown('function', name, FUNCTIONS)},"
            few = len(arguments) != 2 if name == "ceil_div" else len(arguments) < 2
            return f"{name} takes {'two' if name == 'ceil_div' else 'two or more'} sizes" if (
                few or any(isinstance(each, ast.Starred) for each in arguments)
            ) else None  # fmt: skip
        case ast.Name() | ast.IfExp() | ast.BoolOp():
            return None
        case ast.expr():
            return f"{ast.unparse(part)[:20]!r} is not of numbers, sizes, + - * // %, comparisons, min, max and ceil_div"  # noqa: E501
        case _:
            return None  # operators and contexts, judged with what holds them
