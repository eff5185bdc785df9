"""A kernel file as a rung: its header, evaluated for a layer's sizes, is a design like others."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from tilewright.errors import unknown
from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Array,
    Convolutions,
    Design,
    Geometry,
    NotForLayer,
    Options,
    Work,
    preferring,
    source,
    tiles,
)
from tilewright.rungs.gpu.prepare import constant_argument, gpu_rung
from tilewright.rungs.own.expression import Expression, Place
from tilewright.rungs.own.header import AXES, IMAGES, Entry, KernelFile, Three, parse
from tilewright.rungs.own.includes import whole
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import GPU_KINDS, Kind
from tilewright.runtime.dialect import DoesNotFit, Grid, Language, Limits, Source

LARGEST_NUMBER = 2**31 - 1  # a kernel takes whole numbers as int
RUNS_ON: dict[Language, tuple[Kind, ...]] = {
    "dialect": GPU_KINDS,
    "cuda": ("cuda",),
    "opencl": ("opencl",),
}


def load(path: Path | str) -> Rung:
    """The rung in a kernel file."""
    return rung_of(read(Path(path)))


def read(path: Path) -> KernelFile:
    """A kernel file and what its header says, with all that it includes."""
    text, parts = whole(path)
    return parse(text, path, parts)


def rung_of(file: KernelFile) -> Rung:
    """Convolutions as the file says, and the other layers like all GPU rungs."""
    from tilewright.rungs import NAMES

    place = Place(str(file.path), 1, "")
    if file.name in NAMES:
        raise place.error(f"the name {file.name!r} is that of a rung on the ladder")
    if file.against is not None and file.against not in NAMES:
        raise place.error(f"against: {unknown('rung', file.against, NAMES)}")
    convolutions = _convolutions(file, _other(file, place))
    rung = gpu_rung(file.name, file.idea, convolutions, file.against)
    return replace(
        rung, devices=RUNS_ON[file.language], precision=file.precision, origin=str(file.path)
    )


def _other(file: KernelFile, place: Place) -> Convolutions | None:
    """How layers are computed that the file is not for."""
    if file.otherwise is None:
        return None
    from tilewright.rungs import rungs
    from tilewright.runtime.device import OPENCL

    known = {rung.name: rung.convolutions for rung in rungs(OPENCL) if rung.convolutions}
    if file.otherwise not in known:
        raise place.error(f"otherwise: {unknown('GPU rung', file.otherwise, known)}")
    return known[file.otherwise]


def _convolutions(file: KernelFile, other: Convolutions | None) -> Convolutions:
    """How a file computes convolutions; those it is not for, another rung may."""

    @cache  # a layer is prepared many times in a proof, and there may be thousands
    def offered(geometry: Geometry) -> tuple[Options, ...]:
        return tuple(allowed(file, geometry))

    def choices(geometry: Geometry, limits: Limits) -> Iterator[Options]:
        if unmet := _unmet(file, geometry):
            if other is None:
                raise NotForLayer(_refusal(unmet, geometry))
            yield from other.candidates(geometry, limits)
            return
        yield from offered(geometry)
        if not offered(geometry):
            raise DoesNotFit(f"no choice of the parameters of {file.path} meets its constraints")

    def made(geometry: Geometry, options: Options) -> Design:
        if other is not None and _unmet(file, geometry):
            return other.build(geometry, options)
        return build(file, geometry, options)

    return preferring(choices, lambda geometry, limits: (), made)


def allowed(file: KernelFile, geometry: Geometry) -> Iterator[Options]:
    """The choices of its parameters that meet its constraints, the first one first."""
    for choice in itertools.product(*file.parameters.values()):
        options = dict(zip(file.parameters, choice, strict=True))
        values = _values(file, geometry, options)
        if all(each.value(values) for each in file.constraints):
            yield options


def _unmet(file: KernelFile, geometry: Geometry) -> Expression | None:
    """The first thing that a file requires and a layer has not."""
    sizes = _sizes(geometry)
    return next((each for each in file.requires if not each.value(sizes)), None)


def _refusal(unmet: Expression, geometry: Geometry) -> str:
    sizes = _sizes(geometry)
    here = ", ".join(f"{name} is {sizes[name]}" for name in sorted(unmet.names))
    return (
        f'{unmet.place.file} requires {unmet.text}, and {here}; with otherwise = "direct" in its '
        "header that rung takes such layers"
    )


def build(file: KernelFile, geometry: Geometry, options: Options) -> Design:
    """The file's kernels for a layer, with its parameters chosen."""
    values = _values(file, geometry, options)
    works = [_work(file, entry, values) for entry in file.kernels]
    if file.adds_bias:
        works.append(_bias(file, geometry))
    scratch, workspace = (
        {name: size.at_least(1, values) for name, size in buffers.items()}
        for buffers in (file.scratch, file.workspace)
    )
    order = tuple(AXES.index(axis) for axis in file.weight_axes)

    def pack(weight: Array, bias: Array) -> dict[str, Array]:
        packed = {"weight": np.ascontiguousarray(weight.transpose(order)), "bias": bias}
        for index, entry in enumerate(file.kernels):
            if entry.constant is not None:
                packed[constant_argument(index)] = packed[entry.constant].ravel()
        return packed

    return Design(tuple(works), scratch, pack, workspace)


def _sizes(geometry: Geometry) -> dict[str, int]:
    return {name.upper(): value for name, value in vars(geometry).items()}


def _values(file: KernelFile, geometry: Geometry, options: Options) -> dict[str, int]:
    """All that expressions know of a layer, under the names that the source has it by."""
    values = {**_sizes(geometry), **options}
    for name, size in file.sizes.items():
        values[name] = size.value(values)
    return values


def _work(file: KernelFile, entry: Entry, values: dict[str, int]) -> Work:
    x, y, z = (size.at_least(1, values) for size in entry.block)
    block = {"THREADS_X": x, "THREADS_Y": y, "THREADS_Z": z, "THREADS": x * y * z}
    scope = {**values, **block}
    floats = {
        None: 0,
        "weight": values["FILTERS"] * values["CHANNELS"] * values["TAPS_Y"] * values["TAPS_X"],
        "bias": values["FILTERS"],
    }
    numbers = {name: scope[name] for name in entry.arguments if name in scope}
    for name, number in numbers.items():
        if abs(number) > LARGEST_NUMBER:
            raise entry.grid[0].place.error(f"the argument {name} is {number:,}: no int")
    made = Source(
        entry.name,
        file.text,
        (x, y, z),
        tuple(values.items()),
        shared_floats=tiles(entry.shared_bytes.at_least(0, scope), 4),
        constant_floats=floats[entry.constant],
        language=file.language,
        file=shown_name(file.path),
        constant_symbol=entry.constant_symbol,
        parameters="".join("i" if a in numbers or a == IMAGES else "*" for a in entry.arguments),
        parts=file.parts,
    )
    arguments = tuple("images" if name == IMAGES else name for name in entry.arguments)
    shape = partial(_grid, entry.grid, scope)
    shape(1)  # what is wrong in general is said before anything starts
    return Work(made, arguments, numbers=numbers, shape=shape)


def _grid(sizes: Three, scope: dict[str, int], images: int) -> Grid:
    x, y, z = (size.at_least(1, {**scope, IMAGES: images}) for size in sizes)
    return x, y, z


def _bias(file: KernelFile, geometry: Geometry) -> Work:
    name = f"{re.sub(r'[^a-z0-9]', '_', file.name)}_bias"
    return Work(
        source(f"own_{name}", "bias.cl", (BLOCK_THREADS, 1, 1), geometry.constants),
        ("bias", "out"),
        blocks=tiles(geometry.outputs, BLOCK_THREADS),
        adds_bias=True,
    )


def shown_name(path: Path) -> str:
    """The file's name as compilers are given it: nothing in it needs an escape."""
    return re.sub(r"[^\w.-]", "_", path.name)
