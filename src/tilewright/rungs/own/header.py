"""The header of a kernel file: what the host must know, declared as data.

A kernel file begins with a comment, `/* tilewright ... */`, that is TOML inside;
docs/your-kernel.md has every key. Here it becomes a `KernelFile`, all of it checked; nothing of it
is executed, and every complaint names the file and the line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.errors import unknown
from tilewright.precision import CLASSES, Precision
from tilewright.rungs.gpu.design import Geometry
from tilewright.rungs.own.expression import Expression, HeaderError
from tilewright.rungs.own.reader import Reader, Table
from tilewright.runtime.dialect import Language, Part, prelude

OPENING = re.compile(r"\s*/\*\s*tilewright\b")
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
BUFFER = re.compile(r"[a-z][a-z0-9_]{0,39}")
SIZE = re.compile(r"[A-Z][A-Z0-9_]{0,39}")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
IMAGES = "IMAGES"
BUFFERS = ("x", "weight", "bias", "out")
THREADS = ("THREADS_X", "THREADS_Y", "THREADS_Z", "THREADS")
# A layer's numbers. Those of groups and dilation are not among them: such layers are not for kernel
# files, and have the kernel of `direct`.
UNTOLD = ("groups", "dilation_y", "dilation_x", "padded")
SIZES = tuple(name.upper() for name in Geometry.__dataclass_fields__ if name not in UNTOLD)
MOST_CANDIDATES = 4096
MOST_KERNELS = 16
AXES = ("filter", "channel", "tap_y", "tap_x")
Three = tuple[Expression, Expression, Expression]


@dataclass(frozen=True)
class Entry:
    """One kernel of a file: its name in the source, and how it is launched."""

    name: str
    block: Three
    grid: Three
    arguments: tuple[str, ...]
    shared_bytes: Expression
    constant: str | None  # what its constant memory holds: weight or bias
    constant_symbol: str


@dataclass(frozen=True)
class KernelFile:
    """A kernel file, read: its text and all that its header says.

    `weight_axes` is the order of the weights in memory, from the slowest to the fastest axis;
    `adds_bias`: the bias is added by a kernel of ours, after those of the file. `scratch` has the
    floats that an image needs in between, `workspace` those that a launch needs.
    """

    path: Path
    text: str
    language: Language
    name: str
    idea: str
    against: str | None
    precision: Precision
    atomics: bool
    adds_bias: bool
    weight_axes: tuple[str, ...]
    requires: tuple[Expression, ...]
    otherwise: str | None
    parameters: Mapping[str, tuple[int, ...]]
    constraints: tuple[Expression, ...]
    sizes: Mapping[str, Expression]
    scratch: Mapping[str, Expression]
    workspace: Mapping[str, Expression]
    kernels: tuple[Entry, ...]
    parts: tuple[Part, ...] = ()


def parse(text: str, path: Path, parts: tuple[Part, ...] = ()) -> KernelFile:
    """What a kernel file says; HeaderError, which names file and line, if it cannot be.

    `parts` say where lines of the text are from, where it has those of files that it includes.
    """
    table = _table(text, path)
    top = Reader(table)
    language = _language(top, path)
    parameters = _parameters(top.table("parameters"))
    known = {*SIZES, *parameters}
    sizes = _sizes(top.table("sizes"), known)
    known |= set(sizes)
    scratch = _buffers(top.table("scratch"), known, BUFFERS)
    workspace = _buffers(top.table("workspace"), known, (*BUFFERS, *scratch))
    between = {*scratch, *workspace}
    kernels = tuple(_entry(each, language, known, between) for each in _kernels(top))
    adds_bias = _adds_bias(top, kernels)
    read = KernelFile(
        path=path,
        text=text,
        language=language,
        name=top.matching("name", NAME, path.stem.lower(), "small letters, digits and dashes"),
        idea=top.line("idea", "a kernel of one's own"),
        against=top.optional("against"),
        precision=CLASSES[top.choice("precision", tuple(CLASSES), "fp32")],
        atomics=top.flag("atomics"),
        adds_bias=adds_bias,
        weight_axes=_axes(top),
        requires=_conditions(top, "requires", {*SIZES}),
        otherwise=top.optional("otherwise"),
        parameters=parameters,
        constraints=_conditions(top, "constraints", known),
        sizes=sizes,
        scratch=scratch,
        workspace=workspace,
        kernels=kernels,
        parts=parts,
    )
    top.finish()
    return read


def _table(text: str, path: Path) -> Table:
    opening = OPENING.match(text)
    if opening is None:
        raise HeaderError(
            f"{path}:1: a kernel file begins with a comment `/* tilewright ... */` that says how "
            "its kernels are launched; `tilewright kernel new` writes one"
        )
    line = 1 + text.count("\n", 0, opening.end())
    end = text.find("*/", opening.end())
    if end < 0:
        raise HeaderError(f"{path}:{line}: the header's comment does not end")
    inside = text[opening.end() : end]
    try:
        values = tomllib.loads(inside)
    except tomllib.TOMLDecodeError as error:
        said = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
        problem, inner = (said[1], said[2]) if said else (str(error), None)
        at = line + int(inner) - 1 if inner else line + inside.count("\n")
        raise HeaderError(f"{path}:{at}: the header is not TOML: {problem}") from error
    except RecursionError:
        raise HeaderError(f"{path}:{line}: the header is too deep") from None
    return Table.of(values, str(path), line, inside)


def _language(top: Reader, path: Path) -> Language:
    if path.suffix == ".cu":
        top.choice("language", ("cuda",), "cuda")
        return "cuda"
    plain = top.choice("language", ("dialect", "opencl"), "dialect") == "opencl"
    return "opencl" if plain else "dialect"


@cache
def reserved() -> set[str]:
    """Names that macros of ours have, without their TW_."""
    macros = re.findall(r"#define TW_(\w+)", prelude())
    return {*SIZES, *THREADS, *macros, IMAGES, "NAME", "CONSTANT_FLOATS"}


def _check_size(table: Reader, name: str, taken: set[str]) -> None:
    if not SIZE.fullmatch(name):
        raise table.place(name).error("a size's name has capital letters, digits and _")
    if name in taken or name in reserved():
        raise table.place(name).error("the name is taken")


def _parameters(table: Reader) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    count = 1
    for name in table.names:
        _check_size(table, name, set(found))
        found[name] = table.numbers(name)
        count *= len(found[name])
        if count > MOST_CANDIDATES:
            raise table.place(name).error(
                f"the parameters have more than {MOST_CANDIDATES:,} combinations"
            )
    return found


def _sizes(table: Reader, known: set[str]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for name in table.names:
        _check_size(table, name, known | set(found))
        found[name] = table.expression(name, known | set(found))
    return found


def _buffers(table: Reader, known: set[str], taken: tuple[str, ...]) -> dict[str, Expression]:
    found: dict[str, Expression] = {}
    for name in table.names:
        if not BUFFER.fullmatch(name):
            raise table.place(name).error("a buffer's name has small letters, digits and _")
        if name in (*taken, "images"):
            raise table.place(name).error("the name is taken")
        found[name] = table.expression(name, known)
    return found


def _kernels(top: Reader) -> list[Reader]:
    kernels = top.tables("kernel")
    if not kernels:
        raise top.start.error("there is no [[kernel]]")
    if len(kernels) > MOST_KERNELS:
        raise top.place("kernel").error(f"there are more than {MOST_KERNELS} kernels")
    return kernels


def _entry(table: Reader, language: Language, known: set[str], between: set[str]) -> Entry:
    name = table.matching("entry", IDENTIFIER, None, "a name in C")
    threads = known | set(THREADS)
    arguments = table.words("arguments")
    for argument in arguments:
        allowed = {*BUFFERS, *between, IMAGES, *threads}
        if argument not in allowed:
            raise table.place("arguments").error(str(unknown("argument", argument, allowed)))
    constant = table.optional("constant")
    if constant not in (None, "weight", "bias"):
        raise table.place("constant").error("constant memory holds 'weight' or 'bias'")
    if constant and language == "opencl":
        raise table.place("constant").error(
            "OpenCL C takes constant memory as an argument `__constant float *`: name it in "
            "arguments"
        )
    symbol = table.matching("constant_symbol", IDENTIFIER, "tw_constant", "a name in C")
    if symbol != "tw_constant" and language != "cuda":
        raise table.place("constant_symbol").error("only CUDA C names its constant memory")
    if "shared_floats" in table.values and "shared_bytes" in table.values:
        raise table.place("shared_bytes").error("shared_floats says the same: give one of them")
    shared = table.expression("shared_bytes", threads, "0")
    if "shared_floats" in table.values:
        floats = table.expression("shared_floats", threads)
        shared = Expression(f"4 * ({floats.text})", floats.place)
    entry = Entry(
        name,
        table.three("block", known),
        table.three("grid", threads | {IMAGES}),
        arguments,
        shared,
        constant,
        symbol,
    )
    table.finish()
    return entry


def _adds_bias(top: Reader, kernels: tuple[Entry, ...]) -> bool:
    added = top.choice("bias", ("argument", "added"), "argument") == "added"
    taken = any("bias" in entry.arguments or entry.constant == "bias" for entry in kernels)
    if not taken and not added:
        raise top.start.error(
            'no kernel takes the bias: name it in arguments, or say bias = "added" to have it '
            "added by one more kernel"
        )
    if taken and added:
        raise top.place("bias").error("a kernel takes the bias, and it is to be added once more")
    if not any("out" in entry.arguments for entry in kernels):
        raise top.start.error("no kernel takes out, where the result belongs")
    return added


def _axes(top: Reader) -> tuple[str, ...]:
    given = top.line("weight_order", " ".join(AXES))
    axes = tuple(given.replace("taps", "tap_y tap_x").split())
    if sorted(axes) != sorted(AXES):
        raise top.place("weight_order").error(
            "must have each of filter, channel, tap_y and tap_x once (taps is tap_y tap_x)"
        )
    return axes


def _conditions(top: Reader, key: str, known: set[str]) -> tuple[Expression, ...]:
    found = tuple(Expression(text, place) for text, place in top.texts(key))
    for each in found:
        each.check_names(known)
    return found
