"""Mistakes planted into a rung on purpose, to see the proof find them.

Some are in the weights that a rung is given, some in the images it reads, and some in the text of
its kernel: each is one that people make. None reads or writes where it must not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network, Parameters, Stage, Stages
from tilewright.precision import Precision
from tilewright.rungs.gpu.design import Convolutions, Design, Geometry, Options
from tilewright.rungs.gpu.prepare import gpu_rung, limits_of
from tilewright.rungs.rung import Launch, Rung
from tilewright.rungs.rung import Options as AnyOptions
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.device import Device
from tilewright.truth.quick import SHAPES

Array = NDArray[np.float32]
# Weights and bias of a convolution; a layer without bias has zeros there, and keeps none.
Wrong = Callable[[Array, Array], tuple[Array, Array]]


@dataclass(frozen=True)
class Mistake:
    """`weights` are what a rung gets instead of its own, `text` what stands in its kernel instead
    of what, and `blind` means that the last column of every picture is taken for zeros.
    """

    name: str
    words: str
    weights: Wrong | None = None
    text: tuple[tuple[str, str], ...] = ()
    blind: bool = False


def _swapped(weight: Array, bias: Array) -> tuple[Array, Array]:
    filters, channels, height, width = weight.shape
    turned = weight.swapaxes(2, 3).reshape(filters, channels, height, width)
    return np.ascontiguousarray(turned), bias


def _without_last(axis: int) -> Wrong:
    def wrong(weight: Array, bias: Array) -> tuple[Array, Array]:
        left = weight.copy()
        left[(slice(None),) * axis + (-1,)] = 0
        return left, bias

    return wrong


MISTAKES = (
    Mistake("bias", "the bias is forgotten", lambda weight, bias: (weight, np.zeros_like(bias))),
    Mistake("neighbour", "each filter has its neighbour's bias",
            lambda weight, bias: (weight, np.roll(bias, 1))),
    Mistake("axes", "the window's y and x are swapped", _swapped),
    Mistake("mirror", "the window is mirrored: a convolution as in mathematics",
            lambda weight, bias: (np.ascontiguousarray(weight[:, :, ::-1, ::-1]), bias)),
    Mistake("tap", "the window's last column is left out: one iteration too few", _without_last(3)),
    Mistake("channel", "the last input channel is left out", _without_last(1)),
    Mistake("rounded", "weights are rounded to half precision, though fp32 is claimed",
            lambda weight, bias: (weight.astype(np.float16).astype(np.float32), bias)),
    Mistake("edge", "the picture's last column is taken for padding", blind=True),
    Mistake("border", "the test for taps outside the picture starts one column too late",
            text=(("xx >= 0", "xx > 0"), ("x >= 0", "x > 0"))),
    Mistake("last-column", "the last column of outputs is never written: off by one",
            text=(("column < TW_OUT_X", "column < TW_OUT_X - 1"),
                  ("column + i < TW_OUT_X", "column + i < TW_OUT_X - 1"),
                  ("position < POSITIONS", "position < POSITIONS - 1"))),
    Mistake("barrier", "threads do not wait for each other: barriers are missing",
            text=(("TW_BARRIER();", ""),)),
)  # fmt: skip


def mistakes_for(rung: Rung, device: Device) -> Iterator[Mistake]:
    """Those that can be planted into a rung: its kernel must have the place, and pictures that it
    shall not see must lie where they can be changed.
    """
    for mistake in MISTAKES:
        if mistake.text:
            if any(_changed_lines(rung, mistake, device)):
                yield mistake
        elif not mistake.blind or "host" in rung.memories:
            yield mistake


def planted(rung: Rung, mistake: Mistake) -> Rung:
    """The rung with one mistake in its convolutions."""
    if mistake.text:
        found = rung.convolutions
        assert found is not None  # see `mistakes_for`

        def build(geometry: Geometry, options: Options) -> Design:
            return _with_text(found.build(geometry, options), mistake)

        convolutions = Convolutions(found.candidates, build, found.choose)
        return replace(gpu_rung(rung.name, rung.idea, convolutions), precision=rung.precision)

    def prepare(
        runtime: Runtime,
        stages: Stages,
        parameters: Parameters,
        options: AnyOptions,
        precision: Precision,
    ) -> Launch:
        given = dict(parameters)
        for stage in stages:
            if stage.kind == "conv" and mistake.weights is not None:
                given |= _wrong(stage, parameters, mistake.weights)
        launch = rung.prepare(runtime, stages, given, options, precision)
        blind = mistake.blind and any(stage.kind == "conv" for stage in stages)
        return _blind(launch) if blind else launch

    return replace(rung, prepare=prepare)


def changes(rung: Rung, mistake: Mistake, device: Device) -> list[tuple[str, str]]:
    """Lines of the rung's kernels as they were, and as they are now."""
    return list(_changed_lines(rung, mistake, device)) if mistake.text else []


def _wrong(stage: Stage, parameters: Parameters, wrong: Wrong) -> dict[str, Array]:
    names = f"{stage.name}.weight", f"{stage.name}.bias"
    weight, bias = parameters[names[0]], parameters.get(names[1])
    made = wrong(weight, np.zeros(len(weight), np.float32) if bias is None else bias)
    return {name: array for name, array in zip(names, made, strict=True) if name in parameters}


def _blind(launch: Launch) -> Launch:
    def run(x: Buffer, out: Buffer, *others: Buffer) -> None:
        assert isinstance(x, np.ndarray)  # see `mistakes_for`
        seen = x.copy()
        seen[..., -1] = 0
        launch(seen, out, *others)

    return run


def _with_text(design: Design, mistake: Mistake) -> Design:
    """Everywhere in each kernel."""
    works = []
    for work in design.works:
        text = work.source.text
        for old, new in mistake.text:
            text = text.replace(old, new)
        works.append(replace(work, source=replace(work.source, text=text)))
    return replace(design, works=tuple(works))


def _changed_lines(rung: Rung, mistake: Mistake, device: Device) -> Iterator[tuple[str, str]]:
    if rung.convolutions is None or rung.origin is not None:
        return
    shape, layer = SHAPES[0]
    stage = _stage(Network("odd", Pixels(shape), (layer,)))
    design = rung.convolutions.design(Geometry.of(stage), limits_of(device))
    for before, after in zip(design.works, _with_text(design, mistake).works, strict=True):
        lines = (work.source.text.splitlines() for work in (before, after))
        for old, new in zip(*lines, strict=True):
            if old != new:
                yield old.strip(), new.strip()


def _stage(network: Network) -> Stage:
    return next(stage for stage in network.stages if isinstance(stage.layer, Convolution))
