"""What became of every loop of a layer on the CPU rungs, as compilers' feedback says it.

`serial` and `threads`: the lines of their own source, and what machine code the compiler made of
the innermost. `im2col`: the copies and the matrix product that a layer became.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any

import numpy as np

from tilewright.environment import cpu_cores
from tilewright.model.layers import Convolution, FullyConnected, Pixels, Planar, Pooling
from tilewright.model.network import Network, Stage
from tilewright.rungs.cpu import loops

FUSED = re.compile(r"\bv?fn?m(?:add|la)\w*|\bfmadd\w*|\bfmla\b")
OF_VECTORS = re.compile(r"p[sd]$|^fmla$")


@dataclass(frozen=True)
class LoopFact:
    """A loop or a step: its line in the source if it has one, how often for an image, and where."""

    line: int | None
    code: str
    extent: int
    place: str


@dataclass(frozen=True)
class LayerFacts:
    stage: Stage
    source: str
    loops: tuple[LoopFact, ...]
    notes: tuple[str, ...]


def explain_loops(network: Network, cores: int) -> Iterator[LayerFacts]:
    """Every layer of `serial` (on one core) or `threads`."""
    for stage in network.stages:
        if not stage.layer.computes:
            continue
        made = loops.loops_for((stage,), network.parameters)
        function = _function(made)
        fused, vectors = _fused(stage, made, function)
        found = tuple(_loops(stage, function, cores, vectors))
        notes = []
        if stage.flops and fused is not None:
            kinds = f"{vectors} of vectors, {fused - (vectors or 0)} of single numbers"
            notes.append(f"machine code: {fused} fused multiply-adds ({kinds})")
            if not vectors:
                notes.append("the order of additions is kept: one sum waits for itself")
        yield LayerFacts(stage, f"loops.py, {function.__name__}", found, tuple(notes))


def _function(of: loops.Loops) -> FunctionType:
    """The Python of a kernel."""
    made: Any = of.kernel
    function: FunctionType = made.py_func
    return function


def _loops(
    stage: Stage, function: FunctionType, cores: int, vectors: int | None
) -> Iterator[LoopFact]:
    text, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(text)))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    for index, node in enumerate(sorted(nodes, key=lambda node: node.lineno)):
        name = ast.unparse(node.target)
        line = first + node.lineno - 1
        code = f"for {name} in {ast.unparse(node.iter)}"
        if index == 0:
            place = f"parallel: over {cores} cores" if cores > 1 else "sequential: on one core"
        elif _reduces(node):
            place = "reduction, in vectors" if vectors else "reduction, one after the other"
        else:
            place = "sequential"
        yield LoopFact(line, code, _extents(stage).get(name, 1), place)


def _reduces(loop: ast.For) -> bool:
    """Whether a number goes from one turn to the next: read before it is set, and no index."""
    body = ast.Module(loop.body, [])
    indices = {name for node in ast.walk(body) if isinstance(node, ast.Subscript)
               for name in _names(node.slice)}  # fmt: skip
    set_before: set[str] = set()
    carried: set[str] = set()
    for name, sets in _uses(body):
        if sets:
            set_before.add(name)
        elif name not in set_before:
            carried.add(name)
    return bool((carried & set_before) - indices)


def _uses(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Names as a machine meets them, and whether each is set there."""
    if isinstance(node, ast.Name):
        yield node.id, isinstance(node.ctx, ast.Store)
        return
    parts = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Assign):
        parts = [node.value, *node.targets]
    elif isinstance(node, ast.AugAssign):
        yield from ((name, False) for name in _names(node.target))
        parts = [node.value, node.target]
    for part in parts:
        yield from _uses(part)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _extents(stage: Stage) -> dict[str, int]:
    """How often each loop runs for an image, or for one turn of the loop around it."""
    layer, out = stage.layer, stage.output_shape
    if isinstance(layer, Convolution):
        channels, (height, width) = stage.input_shape[0] // layer.groups, layer.kernel
        return {
            "job": out[0], "y": out[1], "column": out[2], "c": channels, "ky": height, "kx": width,
        }  # fmt: skip
    if isinstance(layer, Planar):
        height, width = layer.size if isinstance(layer, Pooling) else (1, 1)
        return {"job": out[0], "y": out[1], "column": out[2], "iy": height, "ix": width}
    if isinstance(layer, Pixels):
        return {"image": 1, "c": out[0], "i": math.prod(out[1:])}
    values = math.prod(stage.input_shape)
    return {"job": math.prod(out), "image": 1, "n": 1, "i": values}


def _fused(
    stage: Stage, made: loops.Loops, function: FunctionType
) -> tuple[int | None, int | None]:
    """Fused multiply-adds in a kernel's machine code, and those of vectors; None if it has none.

    Compiled anew, once for all layers with the same types: what is kept on disk can be run, not
    read.
    """
    if not stage.flops:
        return None, None
    import numba

    shapes = (stage.input_shape, stage.output_shape)
    arrays = made.arrays(*(np.zeros((1, *shape), np.float32) for shape in shapes))
    types = tuple(map(numba.typeof, (*arrays, 0, 0, *made.settings)))
    fresh = _anew(function)
    fresh.compile(types)
    found = FUSED.findall(fresh.inspect_asm(types))
    return len(found), sum(OF_VECTORS.search(word) is not None for word in found)


@cache
def _anew(function: FunctionType) -> Any:
    import numba

    return numba.njit(**loops.NUMBA)(function)


def explain_product(network: Network) -> Iterator[LayerFacts]:
    """Every layer of `im2col` that is a matrix product."""
    for stage in network.stages:
        layer = stage.layer
        if isinstance(layer, Convolution):
            yield LayerFacts(stage, "im2col.py", tuple(_unrolled(stage, layer)), (_matrix(stage),))
        elif isinstance(layer, FullyConnected):
            inputs = math.prod(stage.input_shape)
            product = f"all images x {inputs:,} times {inputs:,} x {layer.outputs:,}"
            fact = LoopFact(None, product, inputs * layer.outputs, _blas())
            yield LayerFacts(stage, "im2col.py", (fact,), ())


def _unrolled(stage: Stage, layer: Convolution) -> Iterator[LoopFact]:
    (channels, height, width), (filters, out_y, out_x) = stage.input_shape, stage.output_shape
    taps, positions = channels * math.prod(layer.kernel), out_y * out_x
    yield LoopFact(None, "for image in batch", 1, "sequential: one matrix for all, near the caches")
    yield LoopFact(None, "copy into the padded image", channels * height * width, "NumPy, one core")
    yield LoopFact(None, "copy windows into the matrix", taps * positions, "NumPy, one core")
    product = f"{filters:,} x {taps:,} times {taps:,} x {positions:,}"
    yield LoopFact(None, product, filters * taps * positions, _blas())
    if layer.bias:
        yield LoopFact(None, "add the bias", filters * positions, "NumPy, one core")


def _matrix(stage: Stage) -> str:
    taps = stage.input_shape[0] * math.prod(_window(stage))
    positions = math.prod(stage.output_shape[1:])
    grown = taps * positions / math.prod(stage.input_shape)
    return (
        f"the matrix has {4 * taps * positions / 1e6:.2f} MB, {grown:.1f} times the input: written "
        "once, read once by the product"
    )


def _window(stage: Stage) -> Sequence[int]:
    assert isinstance(stage.layer, Convolution)
    return stage.layer.kernel


def _blas() -> str:
    """The library behind NumPy's products."""
    found: Any = np.show_config(mode="dicts")
    name = found.get("Build Dependencies", {}).get("blas", {}).get("name", "BLAS")
    return f"{name}, vectors, up to {cpu_cores()} cores"
