"""PyTorch's operators that compute nothing: other shapes, orders, parts and edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.nearest import by_torch
from tilewright.model.formats.parts import Value, listed, place_of
from tilewright.model.formats.torch_file import Call
from tilewright.model.formats.torch_inputs import Building, Given, Maker, value

LAST = 2**63 - 1  # the end of a slice that has none


def _cat(at: Building, call: Call, given: Given) -> Value:
    taken = given["tensors"]
    if not all(isinstance(each, Value) for each in taken):
        raise TilewrightError("concatenates a constant")
    return at.draft.concat(call.name, int(given.get("dim", 0)), *taken)


def _reshaped(at: Building, call: Call, x: Value, sizes: Sequence[int]) -> Value:
    if not sizes or sizes[0] != at.batch:
        raise TilewrightError(f"mixes images: reshapes them to {listed(sizes)}")
    return at.draft.reshape(call.name, x, tuple(sizes[1:]))


def _view(at: Building, call: Call, given: Given) -> Value:
    x = value(given)
    present = at.sizes(x)
    wanted = [int(size) for size in given["size" if "size" in given else "shape"]]
    known = int(np.prod([size for size in wanted if size != -1], dtype=object))
    if wanted.count(-1) == 1 and known > 0:
        wanted[wanted.index(-1)] = int(np.prod(present, dtype=object)) // known
    return _reshaped(at, call, x, wanted)


def _flatten(at: Building, call: Call, given: Given) -> Value:
    x = value(given)
    sizes, rank = at.sizes(x), len(at.sizes(x))
    start = place_of(int(given.get("start_dim", 0)), rank)
    end = place_of(int(given.get("end_dim", -1)), rank)
    middle = int(np.prod(sizes[start : end + 1], dtype=object))
    return _reshaped(at, call, x, [*sizes[:start], middle, *sizes[end + 1 :]])


def _squeeze(at: Building, call: Call, given: Given) -> Value:
    x, axes = value(given), given.get("dim")
    sizes = at.sizes(x)
    every = [axis for axis in range(1, len(sizes)) if sizes[axis] == 1]
    listed = every if axes is None else [axes] if isinstance(axes, int) else axes
    gone = {axis for axis in (place_of(each, len(sizes)) for each in listed) if sizes[axis] == 1}
    return _reshaped(at, call, x, [size for axis, size in enumerate(sizes) if axis not in gone])


def _unsqueeze(at: Building, call: Call, given: Given) -> Value:
    sizes = list(at.sizes(value(given)))
    sizes.insert(place_of(int(given["dim"]), len(sizes) + 1), 1)
    return _reshaped(at, call, value(given), sizes)


def _expand(at: Building, call: Call, given: Given) -> Value:
    """To the sizes that are said, -1 for those that stay, or to those of another value."""
    x = value(given)
    sizes = at.sizes(x)
    if call.operator == "expand_as":
        wanted = at.sizes(value(given, "other"))
    else:
        wanted = tuple(int(size) for size in given["size"])
    if len(wanted) != len(sizes) or wanted[0] not in (-1, at.batch):
        raise TilewrightError(f"repeats {listed(sizes)} to {listed(wanted)}")
    both = zip(sizes[1:], wanted[1:], strict=True)
    return at.draft.expand(x, tuple(own if size == -1 else size for own, size in both))


def _permute(at: Building, call: Call, given: Given) -> Value:
    order = tuple(place_of(int(axis), len(given["dims"])) for axis in given["dims"])
    return at.draft.transpose(call.name, value(given), order)


def _transpose(at: Building, call: Call, given: Given) -> Value:
    order = list(range(len(at.sizes(value(given)))))
    first, second = int(given["dim0"]), int(given["dim1"])
    order[first], order[second] = order[second], order[first]
    return at.draft.transpose(call.name, value(given), tuple(order))


def _shuffle(at: Building, call: Call, given: Given) -> Value:
    return at.draft.shuffle(call.name, value(given), int(given["groups"]))


def _split(at: Building, call: Call, given: Given) -> tuple[Value, ...]:
    """Into pieces of a size but for the last, into so many (`chunk`), or into pieces of sizes."""
    x, axis = value(given), int(given.get("dim", 0))
    size = at.sizes(x)[axis]
    wanted = given.get("split_sizes", given.get("split_size", given.get("chunks")))
    if isinstance(wanted, list):
        return at.draft.split(call.name, x, axis, [int(each) for each in wanted])
    number = int(wanted)
    if number < 1:
        raise TilewrightError(f"splits into {number}")
    each = -(-size // number) if call.operator == "chunk" else number
    sizes = [min(each, size - start) for start in range(0, size, each)]
    return at.draft.split(call.name, x, axis, sizes)


def _pad(at: Building, call: Call, given: Given) -> Value:
    sides = [int(each) for each in given["pad"]]
    if any(sides[6:]) or len(sides) not in (2, 4, 6, 8):
        raise TilewrightError("pads something else than channels, height and width")
    left, right, above, below, before, after = (*sides, 0, 0, 0, 0)[:6]
    level = float(given.get("value") or 0.0)
    x = at.draft.picture(value(given))
    mode = given.get("mode", "constant")
    return at.draft.pad(call.name, x, (above, left, below, right), (before, after), mode, level)


def _slice(at: Building, call: Call, given: Given) -> Value:
    x = value(given)
    axis = place_of(int(given.get("dim", 0)), len(at.sizes(x)))
    start, end = given.get("start"), given.get("end")
    part = (int(start or 0), LAST if end is None else int(end), int(given.get("step", 1)))
    return at.draft.every(call.name, x, axis, part)


def _narrow(at: Building, call: Call, given: Given) -> Value:
    x = value(given)
    axis = place_of(int(given["dim"]), len(at.sizes(x)))
    start = int(given["start"]) % at.sizes(x)[axis]
    return at.draft.every(call.name, x, axis, (start, start + int(given["length"]), 1))


def _flip(at: Building, call: Call, given: Given) -> Value:
    x = value(given)
    for axis in given["dims"]:
        place = place_of(int(axis), len(at.sizes(x)))
        x = at.draft.every(call.name, x, place, (LAST, -LAST, -1))
    return x


def _index(at: Building, call: Call, given: Given) -> Value:
    """Places along axes: of one (`index_select`), or of several whose numbers are broadcast."""
    x = value(given)
    if call.operator == "index_select":
        return _along(at, call, x, int(given["dim"]), given["index"])
    indices = list(given["indices"])
    axes = [axis for axis, each in enumerate(indices) if each is not None]
    if axes and axes != list(range(axes[0], axes[-1] + 1)):
        raise TilewrightError("takes places of axes apart, which come first then")
    arrays = [np.asarray(indices[axis]) for axis in axes]
    for number, (axis, places) in enumerate(zip(axes, arrays, strict=True)):
        # Rows as a column, columns as a row: each row with each column.
        alone = [1] * len(axes)
        alone[number] = -1
        if places.ndim != 1 and places.reshape(alone).shape != places.shape:
            raise TilewrightError("takes single places of a picture")
        if places.ndim == 1 and number != len(axes) - 1:
            raise TilewrightError("takes single places of a picture")
        x = _along(at, call, x, axis, places)
    return x


def _along(at: Building, call: Call, x: Value, axis: int, given: object) -> Value:
    places = np.ravel(np.asarray(given))
    axis = place_of(axis, len(at.sizes(x)))
    size = at.sizes(x)[axis]
    if not axis or places.dtype.kind not in "iu" or not ((places >= -size) & (places < size)).all():
        raise TilewrightError(f"takes places of axis {axis} that are not there, or images")
    return at.draft.along(call.name, x, axis, [int(place) % size for place in places])


def _nearest(at: Building, call: Call, given: Given) -> Value:
    x = at.draft.picture(value(given, "input" if "input" in given else "self"))
    _, height, width = at.draft.shape(x)
    factors = given.get("scale_factors") or [given.get("scales_h"), given.get("scales_w")]
    size = given.get("output_size") or [
        int(own * factor) for own, factor in zip((height, width), factors, strict=True)
    ]
    exact = "exact" in call.operator
    rows, columns = (
        by_torch(own, int(wanted), factor, exact)
        for own, wanted, factor in zip((height, width), size, factors, strict=True)
    )
    return at.draft.take(call.name, x, rows, columns)


def _strided(at: Building, call: Call, given: Given) -> Value:
    """What decompositions write behind an average whose channels lie last in memory: nothing, where
    a pixel is a picture and memory has one order."""
    x = value(given)
    sizes, wanted = at.sizes(x), [int(each) for each in given["size"]]
    steps = [int(step) for step, size in zip(given["stride"], wanted, strict=True) if size > 1]
    row = [at.draft.shape(x)[0], 1][-len(steps) :]
    alone = len(sizes) > 1 and set(sizes[2:]) <= {1}
    if not alone or wanted != list(sizes) or given.get("storage_offset") or steps != row:
        raise TilewrightError("reads memory in an order of its own")
    return x


def _pad_of(mode: str) -> Maker:
    def make(at: Building, call: Call, given: Given) -> Value:
        return _pad(at, call, {**given, "pad": given["padding"], "mode": mode})

    return make


SHAPES: dict[str, Maker] = {
    "_unsafe_index": _index,
    "_upsample_nearest_exact2d": _nearest,
    "as_strided": _strided,
    "cat": _cat,
    "channel_shuffle": _shuffle,
    "chunk": _split,
    "constant_pad_nd": _pad,
    "expand": _expand,
    "expand_as": _expand,
    "flatten": _flatten,
    "flip": _flip,
    "index": _index,
    "index_select": _index,
    "narrow": _narrow,
    "pad": _pad,
    "permute": _permute,
    "reflection_pad2d": _pad_of("reflect"),
    "replication_pad2d": _pad_of("replicate"),
    "reshape": _view,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "unsqueeze": _unsqueeze,
    "upsample_nearest2d": _nearest,
    "view": _view,
}
