"""The plan of the house, read from the source: who imports whom, and who may open files.

Data goes one way: network, plan, runtime, trace, views. What differs from that today is listed
here by its name; whatever is new has to fit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import tilewright

pytestmark = pytest.mark.xdist_group("rooms")  # the source is read once
SOURCE = Path(tilewright.__file__).parent
OPENING = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "atomic_write"}

# Rungs' helpers that read: the kernels' own text, kernel files of users and those to start from,
# and the source that Numba's code was made of.
READERS = {
    "tilewright.rungs.gpu.design",
    "tilewright.rungs.own.includes",
    "tilewright.rungs.own.start",
    "tilewright.rungs.cpu.kept",
}
# The kinds of vectors of a CPU are known to its code generator.
RUNTIMES_BEYOND = {("tilewright.runtime.cpu", "tilewright.fuse.cpu.build")}
# Types in their own way: what a rung's `prepare` takes is what its own `open_runtime` gave.
UNTYPED = {("tilewright.rungs.rung", "runtime")}


# Where an import can be.
STATEMENTS = ast.stmt | ast.excepthandler | ast.match_case


@dataclass(frozen=True)
class Import:
    """`late`: when a function is called, not when the module is imported."""

    module: str
    late: bool


@cache
def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ["tilewright", *path.relative_to(SOURCE).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text())
    return found


@cache
def imports(name: str) -> frozenset[Import]:
    """Of our own modules; not those that are there for annotations alone."""
    return frozenset(_imports(modules()[name], False)) - {Import(name, False), Import(name, True)}


def _imports(node: ast.AST, late: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0 and child.module
            names = [f"{child.module}.{alias.name}" for alias in child.names]
            # A name that is no module is something that the module has.
            names = [name if name in modules() else child.module for name in names]
        elif isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        else:
            if isinstance(child, STATEMENTS):
                yield from _imports(child, late or isinstance(child, ast.FunctionDef))
            continue
        yield from (Import(name, late) for name in names if name in modules())


def _named(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [str(node.module)] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]


def inside(name: str, *rooms: str) -> bool:
    return any(f"{name}.".startswith(f"tilewright.{room}.") for room in rooms)


def crossings(of: str, into: tuple[str, ...]) -> set[tuple[str, str]]:
    """Imports, late ones too, from one room into others."""
    return {
        (name, found.module)
        for name in modules()
        if inside(name, of)
        for found in imports(name)
        if inside(found.module, *into)
    }


def test_nothing_is_imported_in_a_circle():
    graph = {
        name: {found.module for found in imports(name) if not found.late} for name in modules()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_a_network_knows_nothing_of_how_and_where_it_runs():
    known = {found.module for name in modules() if inside(name, "model") for found in imports(name)}
    assert {name for name in known if not inside(name, "model")} == {
        "tilewright.errors",
        "tilewright.files",
        "tilewright.precision",
    }


def test_no_view_reaches_into_a_runtime():
    assert crossings("views", ("runtime", "execute", "memory", "store", "cli")) == set()


def test_a_result_knows_neither_devices_nor_how_it_is_shown():
    """A record of last year is read and shown where nothing can run."""
    assert crossings("results", ("runtime", "execute", "memory", "model", "views", "cli")) == set()
    # To be rendered, nothing but the record is needed.
    made = {name for name in modules() if inside(name, "views.run", "views.ladder")}
    known = {found.module for name in made for found in imports(name)}
    assert not {name for name in known if not inside(name, "views", "results", "measure")}


def test_only_the_command_line_and_the_class_show():
    shown = ("views", "cli", "verbs", "classroom")
    users = {
        name
        for name in modules()
        for found in imports(name)
        if inside(found.module, "views", "cli") and not inside(name, *shown)
    }
    assert users == {"tilewright.__main__"}
    # A class has pages and files of its own, and leaves the command line to itself.
    assert crossings("classroom", ("cli", "verbs")) == set()
    # What a verb gives back is shown when it is printed, which need never be.
    assert crossings("verbs", ("cli",)) == set()
    early = {
        (name, found.module)
        for name in modules()
        if inside(name, "verbs")
        for found in imports(name)
        if inside(found.module, "views") and not found.late
    }
    assert early == set()


def test_a_verb_is_the_last_step_before_the_command_line():
    """Whatever does the work knows nothing of who asked for it."""
    users = {
        name
        for name in modules()
        for found in imports(name)
        if inside(found.module, "verbs") and not inside(name, "verbs", "cli")
    }
    assert users == set()


def test_a_report_is_collected_for_the_command_line_alone():
    """It runs whole jobs; nothing that does the work asks for one, and no page measures."""
    users = {
        name
        for name in modules()
        for found in imports(name)
        if inside(found.module, "reporting") and not inside(name, "reporting")
    }
    assert users == {"tilewright.cli.report"}


def test_no_runtime_knows_a_network():
    rooms = ("model", "rungs", "fuse", "plan", "execute", "memory", "job", "profiling")
    found = crossings("runtime", rooms)
    # Of a layer it knows the shape of arrays, and no more.
    named = {
        alias.name
        for name, tree in modules().items()
        if inside(name, "runtime")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "tilewright.model.layers"
        for alias in node.names
    }
    assert named == {"Shape"}
    assert {pair for pair in found if pair[1] != "tilewright.model.layers"} == RUNTIMES_BEYOND


def test_rungs_know_neither_plans_nor_programs():
    rooms = ("plan", "execute", "job", "climb", "truth", "profiling", "data", "files")
    assert crossings("rungs", rooms) == set()
    assert crossings("fuse", ("rungs", "plan", "execute", "job", "data")) == set()


def test_no_rung_opens_a_file():
    openers = {
        name
        for name, tree in modules().items()
        if inside(name, "rungs")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", None)) in OPENING
    }
    assert openers == READERS


def test_a_trace_knows_nobody():
    assert {found.module for found in imports("tilewright.trace")} == {"tilewright.interrupts"}


def test_libraries_of_devices_are_imported_when_they_are_asked_for():
    """But for the module whose only purpose it is."""
    heavy = {"cupy", "pyopencl", "torch", "onnxruntime", "onnx", "cuda", "cupti", "ray"}
    early = {
        (name, top)
        for name, tree in modules().items()
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for top in _named(node)
        if top.partition(".")[0] in heavy
    }
    assert {name for name, _ in early} == {"tilewright.runtime.torch", "tilewright.train"}


def test_devices_runtimes_and_buffers_have_types():
    """Wherever one is handed on, but inside the runtimes, whose libraries have none."""
    untyped = {
        (name, node.arg if isinstance(node, ast.arg) else node.target.id)
        for name, tree in modules().items()
        if not inside(name, "runtime")
        for node in ast.walk(tree)
        if isinstance(node, ast.arg)
        or (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name))
        if isinstance(node.annotation, ast.Name) and node.annotation.id == "Any"
    }
    names = {"runtime", "device", "buffer", "kernel", "program", "mark", "prepare"}
    assert {pair for pair in untyped if pair[1] in names} == UNTYPED
