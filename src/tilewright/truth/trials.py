"""What the verifier tries: layers and networks, those of `odd` too, on some inputs, in some calls.

`verify` says why each kind of inputs is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import TYPES, Join, Layer, Multiply, Pixels, ReLU, Shape, Softmax
from tilewright.model.network import Network
from tilewright.precision import Precision
from tilewright.truth import isolation, odd

Inputs = NDArray[Any]
Generator = np.random.Generator
Calls = tuple[tuple[int, ...], ...]
LARGE = 4095  # needs 12 bits, one more than fp16 and TF32 hold
FAN = 6  # weights of ±1 that each output of a whole-number network has
EXACT = 2**24  # whole numbers up to here are exact in float32
IMAGES = 4
# A full batch, a tail that is not, and a full batch of other images in the same memory. No image
# follows itself, not even as the last of one call and the first of the next.
CALLS: Calls = ((0, 1, 2, 3), (2,), (3, 0, 1, 2))
MANY_CALLS = 20  # of as many images, up to which each count occurs twice
# Powers of two that activations are made larger by, and smaller; fp16 has no room for more.
SIZES, HALF_SIZES = (8, 20, -14, -30), (3, -3)
# Different images in a large batch, and the bytes that its activations may take.
POOL, LARGEST_BATCH_BYTES = 12, 2**28


@dataclass(frozen=True)
class Trial:
    """A network with weights, and images that go through it in some calls, by their numbers.

    `arrival`: some images hold NaN or infinity, which must not come out as a number.
    """

    inputs: str
    network: Network
    images: Inputs
    calls: Calls = CALLS
    arrival: bool = False

    @property
    def capacity(self) -> int:
        """Images in the largest call."""
        return max(map(len, self.calls))


def trials(
    network: Network | None,
    precision: Precision,
    fuses: Callable[[Network], bool],
    batch: int,
    generator: Generator,
    computes: Callable[[Network], bool] = lambda network: True,
) -> Iterator[Trial]:
    """Everything to try, from single layers to the whole network in batches of a size.

    `computes` says whether a network can be computed at all; kinds of layers that cannot, and are
    not in the network at hand, are not tried.
    `fuses` says whether a network's layers are computed several at once; layers that are not are
    looked at one by one wherever they are.
    """
    pixels = Pixels((3, 5, 7), *generator.uniform(0.01, 2, 2))
    yield input_trial(pixels, generator)
    for shape, layer in odd.single(generator):
        if computes(odd.alone(shape, layer)):
            yield from layer_trials(shape, layer, precision, generator)
    for shapes, join in (each for kind in TYPES.values() for each in odd.joins(kind)):
        if computes(odd.joined(shapes, join)):
            yield from join_trials(shapes, join, precision, generator)
    for sequence in (*odd.SEQUENCES, *odd.GRAPHS):
        if not computes(sequence):
            continue
        yield from _network_trials(sequence, precision, generator)
        if fuses(sequence):
            yield from _isolated_trials(sequence, ("sparse", "covering"), precision, generator)
    # Where a network is at hand, its own sequences are tried below.
    for sequence in odd.pooled(generator) if network is None else ():
        if computes(sequence) and fuses(sequence):
            yield from _network_trials(sequence, precision, generator)
    if network is None:
        return
    for stage in network.stages:
        if isinstance(stage.layer, Join):
            yield from join_trials(stage.input_shapes, stage.layer, precision, generator)
        elif stage.index > 0 and stage.layer.computes:
            yield from layer_trials(stage.input_shape, stage.layer, precision, generator)
    # Without its softmax, whole numbers stay whole numbers to the end.
    scores = len(network.layers) - isinstance(network.layers[-1], Softmax)
    if scores:
        yield from _network_trials(network.bare("scores", scores), precision, generator)
    yield from whole_trials(network, precision, fuses(network), batch, generator)


def whole_trials(
    network: Network, precision: Precision, fused: bool, batch: int, generator: Generator
) -> Iterator[Trial]:
    """The whole of a network, in batches of a size, too; if it is `fused`, each layer in it."""
    whole = network.bare("the network")
    given = network.parameters or random_parameters(network, generator)
    real = whole.with_parameters(given)
    yield Trial("random pixels", real, _pixels(whole, IMAGES, generator))
    yield from _network_trials(whole, precision, generator)
    if fused:
        yield from _passing_trials(whole, precision, generator)
        yield from _isolated_trials(whole, tuple(isolation.KINDS), precision, generator)
    yield from _call_trials(whole, precision, fused, batch, generator)


def input_trial(pixels: Pixels, generator: Generator) -> Trial:
    """All values that bytes have, as a network takes them in."""
    size = IMAGES * math.prod(pixels.shape)
    values = generator.permutation(np.arange(size) % 256).astype(np.uint8)
    network = Network("pixels", pixels, (ReLU(),))
    return Trial("all pixel values", network, values.reshape(IMAGES, *pixels.shape))


def at_hand(
    network: Network, precision: Precision, batch: int, generator: Generator
) -> Iterator[Trial]:
    """The convolutions of a network, each kind alone; then the whole, in batches of a size, too."""
    kinds = {(s.input_shape, s.layer): None for s in network.stages if s.kind == "conv"}
    for shape, layer in kinds:
        yield from layer_trials(shape, layer, precision, generator)
    yield pixels_trial(network, batch, generator)


def pixels_trial(network: Network, batch: int, generator: Generator) -> Trial:
    """A few images through the whole of a network, in batches of a size, too."""
    given = network.parameters or random_parameters(network, generator)
    whole = network.bare("the network").with_parameters(given)
    full = tuple(image % IMAGES for image in range(batch))
    return Trial("random pixels", whole, _pixels(whole, IMAGES, generator), (*CALLS, full))


def join_trials(
    shapes: tuple[Shape, ...], join: Join, precision: Precision, generator: Generator
) -> Iterator[Trial]:
    """A layer that takes several: real and whole numbers, and NaN in some of them."""
    yield from _network_trials(odd.joined(shapes, join), precision, generator)


def layer_trials(
    shape: Shape, layer: Layer, precision: Precision, generator: Generator
) -> Iterator[Trial]:
    """A layer alone, as a network of its own, with each kind of inputs in turn."""
    network = odd.alone(shape, layer)
    size = (IMAGES, *network.input.shape)
    if network.parameter_shapes:
        yield from _sum_trials(network, precision, generator)
        return
    scale = 10.0 ** generator.uniform(-4, 2, size)
    real = _float32(generator.normal(size=size) * scale)
    yield Trial("real numbers", network, real)
    yield Trial("negative numbers", network, _float32(-generator.uniform(0.1, 90, size)))
    yield Trial("large numbers", network, _float32(generator.uniform(200, 5000, size)))
    yield Trial("equal numbers", network, np.full(size, generator.normal(), np.float32))
    largest = precision.largest
    special = [0.0, -0.0, 1.0, -1.0, 2.0**-126, -(2.0**-126), 1e-20, -1e-20, 1e4, -1e4]
    if layer.takes_huge:
        special += [value for value in (3e38, -3e38, 7e4, -7e4) if abs(value) <= largest]
    yield Trial("special values", network, _float32(generator.choice(special, size)))
    for words, values in layer.inputs(size, largest, generator).items():
        yield Trial(words, network, _float32(values))
    yield _arrival(network, real, generator)


def _sum_trials(network: Network, precision: Precision, generator: Generator) -> Iterator[Trial]:
    """A layer of weighted sums. Whole numbers have a bound of zero, few products a small one."""
    shapes = network.parameter_shapes
    size = (IMAGES, *network.input.shape)
    terms = max(math.prod(shape[1:]) for shape in shapes.values())
    # The largest whole numbers that operands, and sums of them, hold exactly.
    operand = EXACT if precision.operand_unit == 0 else int(1 / precision.operand_unit)
    exact = min(EXACT, int(1 / precision.accumulator_unit))
    large = min(LARGE, operand - 1, exact // 2)
    kept = min(1.0, exact / large / terms / 2)

    def signs(shape: Shape) -> Inputs:
        return generator.choice([-1, 1], shape) * (generator.random(shape) < kept)

    def numbers(shape: Shape, limit: int = large) -> Inputs:
        return generator.integers(-limit, limit + 1, shape)

    def with_weights(draw: Callable[[Shape], Inputs], bias: bool = True) -> Network:
        return network.with_parameters(
            {
                name: _float32(draw(shape) if len(shape) > 1 or bias else np.zeros(shape))
                for name, shape in shapes.items()
            }
        )

    def single(shape: Shape, value: int = 1) -> Inputs:
        """One value in each row of what belongs together, the rest zero."""
        rows = np.zeros((shape[0], math.prod(shape[1:])))
        rows[np.arange(len(rows)), generator.integers(rows.shape[1], size=len(rows))] = value
        return rows.reshape(shape)

    yield Trial("whole numbers, large inputs", with_weights(signs), _float32(numbers(size)))
    yield Trial("whole numbers, large weights", with_weights(numbers), _float32(signs(size)))
    most = min(operand, exact) - 1
    yield Trial("impulse weights", with_weights(single, bias=False), _float32(numbers(size, most)))
    impulses = with_weights(lambda shape: numbers(shape, most), bias=False)
    yield Trial("impulse inputs", impulses, _float32(single(size)))
    if (side := math.isqrt(exact // (terms + 1))) > 1:
        filling = with_weights(lambda shape: generator.integers(1, min(side, operand), shape))
        positive = _float32(generator.integers(1, min(side, operand), size))
        yield Trial("positive whole numbers", filling, positive)
    weighted = network.stages[-1]
    for kind in ("sparse", "covering"):
        drawn = isolation.alone(network, weighted, kind, precision, generator)
        images = isolation.images(network, kind, IMAGES, precision, generator)
        # Numbers of every size, image by image, as far as sums and products of them are numbers.
        reach = 3 if precision.largest < EXACT else 40
        scale = 2.0 ** generator.integers(-reach, reach + 1, (IMAGES, 1, 1, 1))
        yield Trial(f"{kind} weights", _with(network, drawn), _float32(images * scale))
    real = network.with_parameters(random_parameters(network, generator))
    normal = _float32(generator.normal(size=size))
    yield Trial("real numbers", real, normal)
    even = generator.normal(size=size)
    even[0], even[1] = generator.normal(), 0
    yield Trial("equal numbers, and zeros", real, _float32(even))
    yield _arrival(real, normal, generator)


def _network_trials(
    network: Network, precision: Precision, generator: Generator
) -> Iterator[Trial]:
    """Several layers: whole numbers that stay exact through sums, ReLU and maxima; real numbers."""
    weighted = sum(bool(stage.parameter_shapes) for stage in network.stages)
    exact = min(EXACT, int(1 / precision.accumulator_unit))
    operand = EXACT if precision.operand_unit == 0 else int(1 / precision.operand_unit)
    largest = exact // (2 * (FAN + 1) ** weighted)
    gates = sum(isinstance(stage.layer, Multiply) for stage in network.stages)
    for _ in range(gates):
        largest = math.isqrt(largest)
    limit = max(1, min(LARGE, operand - 1, largest))
    # Products grow fastest, and halves end at 65,504.
    fan, added = (2, 1) if gates and precision.largest < EXACT else (FAN, 9)

    def few(shape: Shape) -> Inputs:
        """A handful of ±1 for each output, so that numbers do not grow out of bounds."""
        if len(shape) == 1:
            return generator.integers(-added, added + 1, shape)
        rows = np.zeros((shape[0], math.prod(shape[1:])))
        for row in rows:
            places = generator.choice(row.size, min(fan, row.size), replace=False)
            row[places] = generator.choice([-1, 1], len(places))
        return rows.reshape(shape)

    size = (IMAGES, *network.input.shape)
    whole = {name: few(shape) for name, shape in network.parameter_shapes.items()}
    numbers = _float32(generator.integers(-limit, limit + 1, size))
    yield Trial("whole numbers", _with(network, whole), numbers)
    real = network.with_parameters(random_parameters(network, generator))
    values = _float32(generator.normal(size=size))
    yield Trial("real numbers", real, values)
    yield _arrival(real, values, generator)


def _passing_trials(
    network: Network, precision: Precision, generator: Generator
) -> Iterator[Trial]:
    """All layers pass values on: what is between those with weights shows."""
    for sums in (True, False):
        given = isolation.passing(network, generator, sums)
        words = "passed on in sums" if sums else "passed on"
        yield from _both_entries(words, network, given, "sparse", precision, generator)
    for number, power in enumerate(SIZES if precision.largest > EXACT else HALF_SIZES):
        made = isolation.passing(network, generator, sums=number % 2 == 0, dead=0.3)
        given = isolation.resized(network, made, power)
        images = isolation.images(network, "sparse", IMAGES, precision, generator) * 2.0**power
        yield Trial(f"passed on, 2**{power} as large", _with(network, given), _float32(images))


def _isolated_trials(
    network: Network, kinds: tuple[str, ...], precision: Precision, generator: Generator
) -> Iterator[Trial]:
    """Each layer with weights alone, among others that pass values on."""
    for stage in network.stages:
        for kind in kinds if stage.parameter_shapes else ():
            if kind == isolation.SINGLE and not precision.stored:
                continue  # sums of many are exact, too
            given = isolation.alone(network, stage, kind, precision, generator)
            words = f"{kind} {'in' if ' ' in kind else 'weights in'} {stage.name}"
            yield from _both_entries(words, network, given, kind, precision, generator)


def _both_entries(
    words: str,
    network: Network,
    given: dict[str, Inputs],
    kind: str,
    precision: Precision,
    generator: Generator,
    count: int = IMAGES,
    calls: Calls = CALLS,
) -> Iterator[Trial]:
    """The same weights for values and, where they need not be whole numbers, for pixels."""
    images = isolation.images(network, kind, count, precision, generator)
    yield Trial(words, _with(network, given), images, calls)
    if kind.startswith("large"):
        return
    pixel = network.input
    ends = [
        abs(shift + value * scale)
        for scale, shift in zip(pixel.scales, pixel.shifts, strict=True)
        for value in (0, 255)
    ]
    made = isolation.within_one(network, given, max(ends))
    pixels = _pixels(network, count, generator)
    yield Trial(f"{words}, pixels", _with(network, made), pixels, calls)


def _call_trials(
    network: Network, precision: Precision, fused: bool, batch: int, generator: Generator
) -> Iterator[Trial]:
    """Large batches, the one asked for among them; many calls, with other images each; images that
    are almost the same. Layers that are looked at by themselves need no more than pixels."""
    values = sum(math.prod(stage.output_shape) for stage in network.stages)
    batch = max(1, min(batch, LARGEST_BATCH_BYTES // (4 * values)))
    between = int(generator.integers(1, batch + 1))
    large = _calls((batch, batch // 2 + 1, min(32, batch), between, batch), generator)
    counts = [generator.permutation(MANY_CALLS) + 1 for _ in range(2)]
    many = _calls(tuple(np.concatenate(counts)), generator)
    orders = [tuple(map(int, generator.permutation(POOL))) for _ in range(2)]
    alike = (orders[0], orders[1][:1], orders[1])
    for words, calls in (("large batches", large), ("many calls", many), ("alike", alike)):
        given = isolation.passing(network, generator, sums=True, bits=precision)
        *values_too, pixels = _both_entries(
            words, network, given, "sparse", precision, generator, POOL, calls
        )
        for trial in (*values_too, pixels) if fused else (pixels,):
            images = _alike(trial.images, generator) if words == "alike" else trial.images
            yield replace(trial, images=images)


def _alike(images: Inputs, generator: Generator) -> Inputs:
    """Images that are all the same but for one place, the first and the last among these; the same
    backwards, and a little brighter; one that is black and one that is white."""
    pixels = images.dtype == np.uint8
    white, least = (255, 1) if pixels else (1, 2.0**-10)
    alike = np.empty_like(images)
    alike[:] = images[0] // 4 * 2 + 120 if pixels else np.abs(images[0]) / 2
    flat = alike.reshape(len(alike), -1)
    flat[-4], flat[-3], flat[-2], flat[-1] = flat[0, ::-1], flat[0] + least, 0, white
    places = np.array([0, -1, *generator.integers(flat.shape[1], size=len(flat) - 7)])
    flat[np.arange(len(places)), places] = white
    return alike


def _calls(sizes: tuple[int, ...], generator: Generator) -> Calls:
    """Calls of so many images of a pool, of which none follows itself: neither at the same place of
    the next call, nor at the next place."""
    calls: list[tuple[int, ...]] = []
    before, last = [0] * max(sizes), 0
    for size in sizes:
        for place, drawn in enumerate(generator.integers(POOL, size=size)):
            # The first of a call is not its last either: see whoever takes one for the other.
            first = before[0] if place == size - 1 and place else last
            while drawn in (before[place], last, first):
                drawn = (drawn + 1) % POOL
            before[place] = last = int(drawn)
        calls.append(tuple(before[:size]))
    return tuple(calls)


def _arrival(network: Network, images: Inputs, generator: Generator) -> Trial:
    """Two images with a NaN and an infinity in them, between others."""
    spoiled = images.copy()
    flat = spoiled.reshape(len(spoiled), -1)
    for image, value in ((1, np.nan), (3, np.inf)):
        flat[image, generator.integers(flat.shape[1])] = value
    return Trial("NaN and infinity", network, spoiled, arrival=True)


def random_parameters(network: Network, generator: Generator) -> dict[str, NDArray[np.float32]]:
    """Normal weights, scaled so that activations neither die out nor blow up."""
    return {
        name: _float32(generator.normal(size=shape) / math.sqrt(max(1, math.prod(shape[1:]))))
        for name, shape in network.parameter_shapes.items()
    }


def _pixels(network: Network, count: int, generator: Generator) -> NDArray[np.uint8]:
    return generator.integers(0, 256, (count, *network.input.shape), np.uint8)


def _with(network: Network, given: dict[str, Inputs]) -> Network:
    return network.with_parameters({name: _float32(value) for name, value in given.items()})


def _float32(values: Inputs) -> NDArray[np.float32]:
    return values.astype(np.float32)
