"""Where wrong outputs lie: which images, filters, rows and columns, and what that looks like."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilewright.diagnose import words
from tilewright.diagnose.words import Reason
from tilewright.model.layers import Convolution
from tilewright.model.network import Stage

Mask = NDArray[np.bool_]
TILES = (128, 64, 32, 16, 8, 4, 2)
AXES = ("image", "filter", "row", "column")


def places(wrong: Mask, stage: Stage) -> Iterator[Reason]:
    """`wrong` is of a batch; of pictures, if it has four axes."""
    if wrong.all():
        yield Reason(words.PLACES, "every output is wrong, in every image", certain=False)
        return
    if (tail := _tail(wrong)) is not None:
        yield tail
        return
    axes = AXES if wrong.ndim == 4 else ("image", "output")
    if isinstance(stage.layer, Convolution):
        border = _border(wrong, touching(stage, stage.layer))
        if border is not None:
            yield border
            axes = AXES[:2]
    for axis, name in enumerate(axes):
        others = tuple(other for other in range(wrong.ndim) if other != axis)
        found: Mask = np.asarray(wrong.any(others))
        if (reason := _along(found, name)) is not None:
            yield reason


def _tail(wrong: Mask) -> Reason | None:
    """All outputs from one on, counted through an image or through the batch."""
    for flat, of in ((wrong.reshape(-1), "the batch"), (wrong[0].reshape(-1), "each image")):
        first = int(flat.argmax())
        if flat[first] and flat[first:].all() and first:
            if of == "each image" and not (wrong.reshape(len(wrong), -1) == flat).all():
                continue
            text = f"the first {first:,} outputs of {of} are right, and all behind them wrong"
            return Reason(words.PLACES, text, certain=False)
    return None


def _border(wrong: Mask, sides: dict[str, Mask]) -> Reason | None:
    """Only where a window reaches beyond the picture."""
    reached = np.any(list(sides.values()), axis=0)
    plane = wrong.any((0, 1))
    if not reached.any() or reached.all() or (plane & ~reached).any():
        return None
    needed = [
        side for side in sides
        if (plane & ~np.any([sides[other] for other in sides if other != side], axis=0)).any()
    ] or [side for side in sides if (plane & sides[side]).any()]  # fmt: skip
    share = f"{np.count_nonzero(plane)} of the {np.count_nonzero(reached)} places"
    where = "all around" if len(needed) == 4 else f"at the {' and '.join(needed)}"
    return Reason(
        words.BORDER,
        f"wrong only at the border, {where}: {share} whose window reaches into the padding, and "
        "none inside; look at the test for taps outside the picture",
        certain=False,
    )


def touching(stage: Stage, layer: Convolution) -> dict[str, Mask]:
    """Which places of an output have a window that reaches into the padding, side by side."""
    masks: dict[str, Mask] = {}
    sizes = stage.output_shape[1:]
    for axis, (near, far) in enumerate((("top", "bottom"), ("left", "right"))):
        first = np.arange(sizes[axis]) * layer.stride[axis] - layer.padding[axis]
        last = first + layer.kernel[axis] - 1
        shape = (-1, 1) if axis == 0 else (1, -1)
        masks[near] = np.broadcast_to((first < 0).reshape(shape), sizes)
        beyond = last >= stage.input_shape[1 + axis]
        masks[far] = np.broadcast_to(beyond.reshape(shape), sizes)
    return masks


def _along(found: Mask, name: str) -> Reason | None:
    """Which indices of an axis have anything wrong, if it is not all of them."""
    if found.all():
        return None
    wrong = np.flatnonzero(found)
    size = len(found)
    plural = f"{name}s"
    if wrong[0] == size - 1:
        return Reason(*_last(name, size, int(wrong[0])), certain=False)
    if len(wrong) == 1:
        return Reason(words.PLACES, f"only in {name} {wrong[0]} of {size}", certain=False)
    if found[wrong[0] :].all():
        first = int(wrong[0])
        return Reason(*_last(plural, size, first), certain=False)
    if found[: wrong[-1] + 1].all():
        text = f"only in the first {wrong[-1] + 1} of {size} {plural}"
        return Reason(words.PLACES, text, certain=False)
    steps = np.unique(np.diff(wrong))
    if len(steps) == 1 and len(wrong) > 2 and wrong[0] < steps[0] and size - wrong[-1] <= steps[0]:
        text = f"only in every {_nth(int(steps[0]))} {name}, from {wrong[0]} on"
        return Reason(words.PLACES, text, certain=False)
    shown = ", ".join(map(str, wrong[:8])) + (", ..." if len(wrong) > 8 else "")
    text = f"only in {len(wrong)} of {size} {plural}: {shown}"
    return Reason(words.PLACES, text, certain=False)


def _last(name: str, size: int, first: int) -> tuple[str, str]:
    """From one on to the end: as the tile that is not full would be, if such a tile is usual."""
    tile = next((tile for tile in TILES if first % tile == 0 and size - first < tile), None)
    some = "only in the last" if name.endswith("s") else "only in"
    which = f"{some} {name}, {first} of {size}" if not name.endswith("s") else (
        f"{some} {size - first} of {size} {name}, from {first} on"
    )  # fmt: skip
    if tile is None or name.startswith("image"):
        return words.PLACES, which
    return words.LAST_TILE, (
        f"{which}: {size} is no multiple of {tile}, and the last tile of {tile} is not full"
    )


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
