"""Where wrong outputs lie: which images, filters, rows and columns, and what that looks like."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution
from tilewright.model.network import Stage
from tilewright.truth.diagnose import words
from tilewright.truth.diagnose.words import Reason

Mask = NDArray[np.bool_]
TILES = (128, 64, 32, 16, 8, 4, 2)
FEW = 3
AXES = ("image", "filter", "row", "column")


def places(wrong: Mask, stage: Stage) -> Iterator[Reason]:
    """`wrong` is of a batch; of pictures, if it has four axes."""
    if wrong.all():
        yield Reason(words.EVERYWHERE, "every output is wrong, in every image", certain=False)
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
    others: list[str] = []
    for axis, name in enumerate(axes):
        along: Mask = np.asarray(wrong.any(tuple(i for i in range(wrong.ndim) if i != axis)))
        word, text = _along(along, name)
        if word == words.PLACES:
            others.append(text)
        elif word:
            yield Reason(word, text, certain=False)
    if others:
        yield Reason(words.PLACES, f"wrong only in {', in '.join(others)}", certain=False)


def _tail(wrong: Mask) -> Reason | None:
    """All outputs from one on, counted through an image or through the batch."""
    for flat, of in ((wrong.reshape(-1), "the batch"), (wrong[0].reshape(-1), "each image")):
        first = int(flat.argmax())
        if wrong.ndim == 4 and first % wrong[0, 0].size == 0:
            continue  # whole filters, or images
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
    if np.count_nonzero(plane) < min(FEW, int(np.count_nonzero(reached))):
        return None  # anywhere, by chance
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


def _along(found: Mask, name: str) -> tuple[str, str]:
    """Which indices of an axis have anything wrong, as a word and in words; neither, if all."""
    wrong, size = np.flatnonzero(found), len(found)
    if len(wrong) == size:
        return "", ""
    first, last = int(wrong[0]), int(wrong[-1])
    which = f"{name} {first} of {size}" if len(wrong) == 1 else f"{len(wrong)} of {size} {name}s"
    if found[first:].all():
        which = f"{name} {first}, the last" if first == last else f"{name}s {first} to {last}"
        return _to_the_end(which, name, first, size)
    if name != "image" and (edge := _edge(wrong, name)) is not None:
        return words.TILE_EDGE, f"wrong only in {which}: {edge}"
    if found[: last + 1].all() and last:
        return words.PLACES, f"{name}s 0 to {last} of {size}"
    steps = np.unique(np.diff(wrong))
    if len(steps) == 1 and len(wrong) > 2 and first < steps[0] and size - last <= steps[0]:
        return words.PLACES, f"every {_nth(int(steps[0]))} {name}, from {first} on"
    if len(wrong) > 1:
        which += f" ({', '.join(map(str, wrong[:8]))}{', ...' if len(wrong) > 8 else ''})"
    return words.PLACES, which


def _edge(wrong: NDArray[np.intp], name: str) -> str | None:
    """Whether they are the last, or the first, of tiles."""
    for tile in TILES[:-2]:
        places = wrong % tile
        last, first = tile - int(places.min()), int(places.max()) + 1
        if last <= tile // 2 and places.max() == tile - 1:
            return f"the last {_so_many(last, name)} of a tile of {tile}"
        if first <= tile // 2 and places.min() == 0 and wrong[0]:
            return f"the first {_so_many(first, name)} of a tile of {tile}"
    return None


def _so_many(count: int, name: str) -> str:
    return name if count == 1 else f"{count} {name}s"


def _to_the_end(which: str, name: str, first: int, size: int) -> tuple[str, str]:
    """As a tile that is not full would be, or a batch that is too large."""
    if name == "image":
        return words.LATER_IMAGES, (
            f"right in the first {first} of {size} images and wrong in all others: an index that "
            "is too small for a large batch, or images that blocks do not reach?"
        )
    tile = next((tile for tile in TILES if first % tile == 0 and size - first < tile), None)
    if tile is None:
        return words.PLACES, which
    return words.LAST_TILE, (
        f"wrong only in {which}: {size} is no multiple of {tile}, and the last tile of {tile} is "
        "not full"
    )


def _nth(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")
