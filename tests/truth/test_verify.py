"""The verifier must pass every right kernel and catch every wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any

import numpy as np
import pytest

import tilewright.truth.verify as verify_module
from tilewright.model import zoo
from tilewright.model.layers import (
    TYPES,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Elementwise,
    Flatten,
    FullyConnected,
    Join,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.layers.convolution import convolve
from tilewright.model.network import Network, Stage
from tilewright.precision import FP16, TF32X3, Precision
from tilewright.rungs import find, rungs
from tilewright.rungs.cpu import im2col
from tilewright.rungs.rung import whole_network
from tilewright.runtime.device import CPU, CUDA, OPENCL
from tilewright.truth import odd, reference
from tilewright.truth.ahead import kernels_of
from tilewright.truth.attempt import compare
from tilewright.truth.trials import IMAGES, Trial
from tilewright.truth.verify import Share, everything, fresh_seed, shared_out, verify

Kernel = Callable[[Any, Any], None]
Break = Callable[[Stage, Any, Kernel], Kernel]
WRONG: dict[str, tuple[str, Break]] = {}
SEED = 7  # wrong ones are met with the same numbers each time, right ones with fresh ones


def wrong(kind: str) -> Callable[[Break], Break]:
    """Register a way to break a kernel: from a stage and its right kernel, a wrong one."""

    def register(function: Break) -> Break:
        WRONG[function.__name__] = (kind, function)
        return function

    return register


def rung_with(kind: str, make: Break) -> Any:
    """The im2col rung with the kernels of one kind replaced."""

    def prepare(runtime, stages, parameters, options, precision):
        (stage,) = stages
        right = im2col.function(stage, parameters)
        function = make(stage, parameters, right) if stage.kind == kind else right
        kernel = runtime.build("kernel", function)
        return lambda x, out, *others: runtime.launch(kernel, x, out, *others, layers=(stage.name,))

    return replace(im2col.RUNG, name="suspect", prepare=prepare)


def naive(stage, parameters, x, dtype=np.float64, **changes):
    """A convolution from the definition, with settings that may be changed to wrong ones."""
    layer = stage.layer
    values = {"kernel": layer.kernel, "stride": layer.stride, "padding": layer.padding} | changes
    weight = changes.pop("weight", parameters[f"{stage.name}.weight"])
    changed = Convolution(
        layer.filters, weight.shape[2:], stride=values["stride"], padding=values["padding"],
        dilation=layer.dilation, groups=layer.groups,
    )  # fmt: skip
    out = convolve(x.astype(dtype), weight.astype(dtype), changed)
    bias = parameters.get(f"{stage.name}.bias")
    return out if bias is None else out + bias[:, None, None]


def fit(result, out):
    """Put a result of the wrong size where it fits; the rest stays whatever it was set to."""
    out[:] = 0
    y, x = min(out.shape[2], result.shape[2]), min(out.shape[3], result.shape[3])
    out[:, :, :y, :x] = result[:, :, :y, :x]


@wrong("conv")
def off_by_one_at_the_border(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if stage.layer.padding[1]:
            out[:, :, :, 0] = out[:, :, :, min(1, out.shape[3] - 1)]

    return run


@wrong("conv")
def padding_forgotten(stage, parameters, right):
    def run(x, out):
        if not any(stage.layer.padding):
            right(x, out)
        else:
            moved = np.roll(x, 1, axis=3)
            fit(naive(stage, parameters, moved), out)

    return run


@wrong("conv")
def bias_forgotten(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if f"{stage.name}.bias" in parameters:
            out -= parameters[f"{stage.name}.bias"][:, None, None]

    return run


@wrong("conv")
def kernel_axes_swapped(stage, parameters, right):
    def run(x, out):
        weight = parameters[f"{stage.name}.weight"]
        if weight.shape[2] != weight.shape[3]:
            right(x, out)
        else:
            out[:] = naive(stage, parameters, x, weight=weight.transpose(0, 1, 3, 2))

    return run


@wrong("conv")
def kernel_flipped(stage, parameters, right):
    weight = parameters[f"{stage.name}.weight"]
    return lambda x, out: out.__setitem__(
        slice(None), naive(stage, parameters, x, weight=weight[:, :, ::-1, ::-1])
    )


@wrong("conv")
def stride_ignored(stage, parameters, right):
    return lambda x, out: fit(naive(stage, parameters, x, stride=(1, 1)), out)


@wrong("conv")
def strides_swapped(stage, parameters, right):
    return lambda x, out: fit(naive(stage, parameters, x, stride=stage.layer.stride[::-1]), out)


@wrong("conv")
def last_row_not_written(stage, parameters, right):
    def run(x, out):
        scratch = np.empty_like(out)
        right(x, scratch)
        out[:, :, :-1] = scratch[:, :, :-1]

    return run


@wrong("conv")
def last_image_of_a_full_batch_not_written(stage, parameters, right):
    return lambda x, out: right(x[:1], out[:1])


@wrong("conv")
def every_image_is_the_first(stage, parameters, right):
    return lambda x, out: right(np.repeat(x[:1], len(x), axis=0), out)


@wrong("conv")
def output_of_the_call_before(stage, parameters, right):
    kept: list[Any] = []

    def run(x, out):
        right(x, out)
        kept.append(out.copy())
        out[:] = kept[0][: len(out)]

    return run


@wrong("conv")
def nothing_written_the_second_time(stage, parameters, right):
    calls: list[int] = []

    def run(x, out):
        if not calls:
            right(x, out)
        calls.append(1)

    return run


@wrong("conv")
def one_nan(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out.flat[-1] = np.nan

    return run


@wrong("conv")
def one_infinity(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out.flat[0] = np.inf

    return run


@wrong("conv")
def last_channel_left_out(stage, parameters, right):
    def run(x, out):
        less = x.copy()
        less[:, -1] = 0
        right(less, out)

    return run


@wrong("conv")
def last_filter_repeats_the_one_before(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if out.shape[1] > 32:  # as a tile of 32 would, on a layer that has 33
            out[:, 32] = out[:, 31]

    return run


@wrong("conv")
def float16_sums(stage, parameters, right):
    def run(x, out):
        weight = parameters[f"{stage.name}.weight"].astype(np.float16)
        bias = parameters.get(f"{stage.name}.bias")
        layer = stage.layer
        (pad_y, pad_x), (step_y, step_x) = layer.padding[:2], layer.stride
        padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
        total = np.zeros(out.shape, np.float16)
        with np.errstate(all="ignore"):
            padded = padded.astype(np.float16)
            for c in range(weight.shape[1]):
                for ky in range(weight.shape[2]):
                    for kx in range(weight.shape[3]):
                        rows = slice(ky, ky + (out.shape[2] - 1) * step_y + 1, step_y)
                        columns = slice(kx, kx + (out.shape[3] - 1) * step_x + 1, step_x)
                        tap = padded[:, c : c + 1, rows, columns]
                        total += tap * weight[:, c, ky, kx][:, None, None]
        out[:] = total
        if bias is not None:
            out += bias[:, None, None]

    return run


def rounded_to(bits):
    """Float32 numbers with a mantissa of so many bits, the way tensor cores take them."""

    def run(values):
        whole = np.ascontiguousarray(values, np.float32).view(np.uint32)
        cut = 24 - bits
        return ((whole + (1 << (cut - 1))) >> cut << cut).astype(np.uint32).view(np.float32)

    return run


@wrong("conv")
def tf32_inputs(stage, parameters, right):
    return lambda x, out: right(rounded_to(11)(x), out)


@wrong("fc")
def tf32_weights(stage, parameters, right):
    weight = rounded_to(11)(parameters[f"{stage.name}.weight"]).astype(float)
    bias = parameters.get(f"{stage.name}.bias", 0)
    return lambda x, out: out.__setitem__(
        slice(None), x.reshape(len(x), -1).astype(float) @ weight.T + bias
    )


@wrong("fc")
def one_product_of_thousands_left_out(stage, parameters, right):
    def run(x, out):
        less = x.reshape(len(x), -1).copy()
        less[:, -1] = 0
        right(less, out)

    return run


@wrong("fc")
def picture_read_in_another_order(stage, parameters, right):
    def run(x, out):
        turned = x.transpose(0, 2, 3, 1) if x.ndim == 4 else x
        right(np.ascontiguousarray(turned).reshape(x.shape), out)

    return run


@wrong("conv")
def a_millionth_too_large(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out *= np.float32(1 + 1e-6)

    return run


def beyond(array):
    """The place right after an array, as a kernel without a bounds test would reach it."""
    return np.lib.stride_tricks.as_strided(array.reshape(-1)[-1:], (2,), (array.itemsize,))


@wrong("relu")
def writes_past_the_end(stage, parameters, right):
    def run(x, out):
        right(x, out)
        beyond(out)[1] = 7

    return run


@wrong("relu")
def reads_past_the_end(stage, parameters, right):
    def run(x, out):
        right(x, out)
        # Zero times what lies there: harmless, unless it is not a number.
        out.flat[-1] += 0 * beyond(x)[1]

    return run


@wrong("relu")
def works_in_place(stage, parameters, right):
    def run(x, out):
        np.maximum(x, 0, out=x)
        out[:] = x

    return run


@wrong("relu")
def lets_negatives_through(stage, parameters, right):
    return lambda x, out: np.maximum(x, 1e-3 * x, out=out)


@wrong("pool")
def maximum_starts_at_zero(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if "max" in stage.layer.summary:
            np.maximum(out, 0, out=out)

    return run


@wrong("pool")
def average_of_the_wrong_count(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if "average" in stage.layer.summary:
            count = stage.layer.size[0] * stage.layer.size[1]
            out *= count / (count + 1)

    return run


@wrong("pool")
def stride_taken_for_size(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if stage.layer.stride != stage.layer.size:
            (sy, sx), (h, w) = stage.layer.stride, out.shape[2:]
            out[:] = x[:, :, : h * sy : sy, : w * sx : sx]

    return run


@wrong("softmax")
def overflows(stage, parameters, right):
    def run(x, out):
        with np.errstate(over="ignore", invalid="ignore"):
            out[:] = np.exp(x)
            out /= out.sum(1, keepdims=True)

    return run


@wrong("softmax")
def not_normalised(stage, parameters, right):
    return lambda x, out: np.exp(x - x.max(1, keepdims=True), out=out)


@wrong("tanh")
def coarse_approximation(stage, parameters, right):
    return lambda x, out: out.__setitem__(
        slice(None), np.clip(x * (27 + x * x) / (27 + 9 * x * x), -1, 1)
    )


@wrong("input")
def pixels_as_signed(stage, parameters, right):
    return lambda x, out: out.__setitem__(
        slice(None), x.view(np.int8) * np.float32(stage.layer.scale) + np.float32(stage.layer.shift)
    )


@wrong("input")
def scale_taken_for_granted(stage, parameters, right):
    return lambda x, out: out.__setitem__(slice(None), x / np.float32(255) - np.float32(0.5))


@wrong("conv")
def third_image_of_a_batch(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out[2:] += 1

    return run


@wrong("conv")
def right_only_twice(stage, parameters, right):
    calls: list[int] = []

    def run(x, out):
        right(x, out)
        calls.append(1)
        if len(calls) > 2:
            out.flat[0] += 1

    return run


@wrong("conv")
def remembers_by_address(stage, parameters, right):
    kept: dict[tuple[int, int], Any] = {}

    def run(x, out):
        key = (x.ctypes.data, len(x))
        if key not in kept:
            right(x, out)
            kept[key] = out.copy()
        out[:] = kept[key]

    return run


def whole_of(view, elements):
    """So many elements from the start of a view on, whatever its end."""
    return np.lib.stride_tricks.as_strided(view.reshape(-1), (elements,), (view.itemsize,))


@wrong("tanh")
def no_bounds_test(stage, parameters, right):
    """Rounds the size up to whole blocks of 256, as a grid without a bounds test does."""

    def run(x, out):
        size = -(-x.size // 256) * 256
        np.tanh(whole_of(x, size), out=whole_of(out, size))

    return run


@wrong("relu")
def tail_taken_for_a_full_batch(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if len(x) < 3:
            whole_of(out, 3 * out[0].size)[out.size :] = 0

    return run


@wrong("relu")
def clipped(stage, parameters, right):
    return lambda x, out: np.clip(x, 0, 2000, out=out)


@wrong("pool")
def maximum_starts_too_high(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if "max" in stage.layer.summary:
            np.maximum(out, -100, out=out)

    return run


@wrong("tanh")
def zero_over_zero(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out[x == 0] = np.nan

    return run


@wrong("fc")
def sums_of_eighteen_bits(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if x[0].size >= 64:
            out[:] = rounded_to(18)(out)

    return run


@wrong("conv")
def wrong_now_and_then(stage, parameters, right):
    """A race that shows in one launch of ten."""
    generator = np.random.default_rng()

    def run(x, out):
        right(x, out)
        if generator.random() < 0.1:
            out.flat[generator.integers(out.size)] += 1

    return run


@wrong("conv")
def many_filters_only(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out[:, 128:] = 0

    return run


@wrong("softmax")
def many_classes_only(stage, parameters, right):
    def run(x, out):
        right(x, out)
        out[:, 1024:] = 0

    return run


@wrong("conv")
def a_tile_of_32_less_one(stage, parameters, right):
    def run(x, out):
        right(x, out)
        if out.shape[1] == 31:
            out[:, -1] = 0

    return run


@wrong("softmax")
def maximum_starts_at_the_smallest_positive(stage, parameters, right):
    def run(x, out):
        with np.errstate(invalid="ignore"):
            np.exp(x - np.maximum(x.max(1, keepdims=True), np.finfo(np.float32).tiny), out=out)
            out /= out.sum(1, keepdims=True)

    return run


@wrong("softmax")
def maximum_without_the_last_score(stage, parameters, right):
    def run(x, out):
        with np.errstate(over="ignore", invalid="ignore"):
            np.exp(x - x[:, : max(1, x.shape[1] - 1)].max(1, keepdims=True), out=out)
            out /= out.sum(1, keepdims=True)

    return run


def test_a_largest_score_is_at_either_end():
    """And so far above the others that what is not taken off it overflows."""
    for size in (1, 2, 33):
        drawn = Softmax().inputs((4, size), 3e38, np.random.default_rng(1))
        peaks = drawn["one score far above the others"].astype(np.float32)
        assert peaks.argmax(1)[:2].tolist() == [0, size - 1]
        others = np.sort(peaks, 1)[:, -2:-1]
        with np.errstate(over="ignore"):
            assert np.isinf(np.exp(peaks.max(1, keepdims=True) - others)).all()


@pytest.fixture
def only_odd(monkeypatch):
    """Leave out what is tried of every rung, but for layers of a kind."""
    odd_layers = odd.single

    def leave(kind: str) -> None:
        monkeypatch.setattr(odd, "SEQUENCES", ())
        monkeypatch.setattr(odd, "GRAPHS", ())
        monkeypatch.setattr(odd, "joins", lambda kind: [])
        monkeypatch.setattr(
            odd,
            "single",
            lambda generator: [each for each in odd_layers(generator) if each[1].kind == kind],
        )

    return leave


@pytest.mark.parametrize("name", WRONG)
def test_every_wrong_kernel_is_caught(name, only_odd):
    kind, make = WRONG[name]
    only_odd(kind)
    verdict = verify(rung_with(kind, make), CPU, zoo.network("ece408-2017"), seed=SEED)
    assert not verdict.passed, f"{name} passed"
    assert kind in str(verdict.fault).partition("(")[0]


class Suspect:
    """A whole network computed right, layer by layer, out of sight. Subclasses spoil it."""

    def __init__(self, stages, parameters):
        self.stages, self.parameters = stages, parameters
        self.calls = 0
        self.pixels = False
        self.functions = {}

    def weights(self, stage, name, value):
        return value

    def image(self, x):
        return x

    def before(self, stage, x):
        return x

    def after(self, stage, x, out):
        pass

    def result(self, out):
        pass

    def __call__(self, x, out):
        self.calls += 1
        self.pixels = x.dtype == np.uint8
        x = self.image(x)
        made = {0: x}
        for stage in self.stages if self.pixels else self.stages[1:]:
            x, *others = [made[index] for index in stage.sources] or [x]
            if stage.kind == "flatten":
                made[stage.index] = x.reshape(len(x), -1)
                continue
            x = self.before(stage, x)
            result = np.empty((len(x), *stage.output_shape), np.float32)
            self.function(stage)(x, result, *others)
            self.after(stage, x, result)
            made[stage.index] = result
        out[:] = made[self.stages[-1].index]
        self.result(out)

    def function(self, stage):
        key = (stage.name, self.pixels)
        if key not in self.functions:
            changed = {
                name: self.weights(stage, name, self.parameters[name])
                for name in stage.parameter_shapes
            }
            self.functions[key] = im2col.function(stage, changed)
        return self.functions[key]


SUSPECTS: dict[str, type[Suspect]] = {}


def suspect(kind: type[Suspect]) -> type[Suspect]:
    SUSPECTS[kind.__name__] = kind
    return kind


def weights_of(bits, where=lambda suspect, stage: True):
    """A network whose weights are rounded, in all layers or some."""

    class Rounded(Suspect):
        def weights(self, stage, name, value):
            rounds = name.endswith("weight") and where(self, stage)
            return rounded_to(bits)(value) if rounds else value

    return Rounded


SUSPECTS["weights of 8 bits"] = weights_of(8)
SUSPECTS["weights of 11 bits"] = weights_of(11)
SUSPECTS["weights of 14 bits in the last convolution"] = weights_of(
    14, lambda s, stage: stage is [each for each in s.stages if each.kind == "conv"][-1]
)
SUSPECTS["weights of 11 bits in the first fc"] = weights_of(
    11, lambda s, stage: stage is next(each for each in s.stages if each.kind == "fc")
)
SUSPECTS["weights of 8 bits for pixels"] = weights_of(8, lambda s, stage: s.pixels)
SUSPECTS["weights of 8 bits for values"] = weights_of(8, lambda s, stage: not s.pixels)


def activations_of(bits, kinds=("relu", "tanh")):
    class Rounded(Suspect):
        def after(self, stage, x, out):
            if stage.kind in kinds:
                out[:] = rounded_to(bits)(out)

    return Rounded


SUSPECTS["activations of 8 bits"] = activations_of(8)
SUSPECTS["activations of 11 bits"] = activations_of(11)
SUSPECTS["sums of 16 bits"] = activations_of(16, ("conv",))
SUSPECTS["scores of 16 bits"] = activations_of(16, ("fc",))
SUSPECTS["probabilities of 14 bits"] = activations_of(14, ("softmax",))


@suspect
class PixelsOver256(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "input":
            out[:] = x / np.float32(256) - np.float32(0.5)


@suspect
class PixelsOffByOne(Suspect):
    def image(self, x):
        return np.minimum(x, 254) + np.uint8(1) if self.pixels else x


@suspect
class BlackLastRow(Suspect):
    def image(self, x):
        if self.pixels:
            x = x.copy()
            x[:, :, -1] = 0
        return x


@suspect
class MissingPixel(Suspect):
    def image(self, x):
        x = x.copy()
        x[:, 0, x.shape[2] // 2, x.shape[3] // 2] = 0
        return x


@suspect
class ValuesOf16Bits(Suspect):
    def image(self, x):
        return x if self.pixels else rounded_to(16)(x)


@suspect
class LastFeatureDropped(Suspect):
    def before(self, stage, x):
        if stage.kind == "fc":
            x = x.copy()
            x.reshape(len(x), -1)[:, -1] = 0
        return x


@suspect
class FourthImage(Suspect):
    def result(self, out):
        out[3:] = out[:1]


@suspect
class SeventeenthImage(Suspect):
    def result(self, out):
        out[16:17] *= np.float32(1.001)


@suspect
class LastOfAHundred(Suspect):
    def result(self, out):
        if len(out) == 100:
            out[-1] = out[-2]


@suspect
class TailOfLargeBatches(Suspect):
    def result(self, out):
        if len(out) > 4 and len(out) % 4:
            out[-1] = out[0]


@suspect
class StaleFirstImage(Suspect):
    """From the second call on, the first result is the last of the call before."""

    kept = None

    def result(self, out):
        last = out[-1].copy()
        if self.kept is not None:
            out[0] = self.kept
        self.kept = last


@suspect
class StaleScratch(Suspect):
    """A row of an image that is left of the image at the same place of the call before."""

    def __init__(self, stages, parameters):
        super().__init__(stages, parameters)
        self.kept = {}

    def after(self, stage, x, out):
        if stage.kind == "pool":
            row = out[0, :, -1].copy()
            out[0, :, -1] = self.kept.get(stage.name, row)
            self.kept[stage.name] = row


@suspect
class FromTheSixteenthCallOn(Suspect):
    def result(self, out):
        if self.calls >= 16:
            out[0] *= np.float32(1.01)


@suspect
class NoBiasWithoutWeights(Suspect):
    def after(self, stage, x, out):
        weight = self.parameters.get(f"{stage.name}.weight")
        if weight is not None:
            out[:, ~weight.reshape(len(weight), -1).any(1)] = 0


@suspect
class LastBiasForgotten(Suspect):
    def weights(self, stage, name, value):
        if name.endswith("bias"):
            value = value.copy()
            value[-1] = 0
        return value


@suspect
class BiasOfTheNextFilter(Suspect):
    def weights(self, stage, name, value):
        return np.roll(value, 1) if name.endswith("bias") else value


@suspect
class ActivationSkipped(Suspect):
    def after(self, stage, x, out):
        if stage.kind in ("relu", "tanh"):
            out[:, -1] = x[:, -1]


@suspect
class PoolingTakesTheFirst(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "pool":
            out[:, :, -1, -1] = x[:, :, 2 * out.shape[2] - 2, 2 * out.shape[3] - 2]


@suspect
class LastFilterZero(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "conv":
            out[:, -1] = 0


@suspect
class LastFilterIsTheFirst(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "conv":
            out[:, -1] = out[:, 0]


@suspect
class LastTapForgotten(Suspect):
    def weights(self, stage, name, value):
        if stage.kind == "conv" and name.endswith("weight"):
            value = value.copy()
            value[:, :, -1, -1] = 0
        return value


@suspect
class LastChannelForgotten(Suspect):
    def weights(self, stage, name, value):
        if stage.kind == "conv" and name.endswith("weight") and value.shape[1] > 1:
            value = value.copy()
            value[:, -1] = 0
        return value


@suspect
class KernelTransposed(Suspect):
    def weights(self, stage, name, value):
        turned = stage.kind == "conv" and name.endswith("weight")
        return np.ascontiguousarray(value.swapaxes(2, 3)) if turned else value


@suspect
class LastColumnShifted(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "conv":
            out[..., -1] = out[..., -2]


@suspect
class OneOutputALittleOff(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "conv":
            out[:, :, 1, 1] *= np.float32(1 + 1e-4)


@suspect
class CoarseTanh(Suspect):
    def after(self, stage, x, out):
        if stage.kind in ("tanh", "relu"):
            out[:] = np.clip(x * (27 + x * x) / (27 + 9 * x * x), -1, 1)


@suspect
class SumsInHalves(Suspect):
    """Two halves of the channels, each rounded to 11 bits before they are added."""

    def after(self, stage, x, out):
        if stage.kind == "conv" and x.shape[1] > 1:
            half = x.copy()
            half[:, x.shape[1] // 2 :] = 0
            first = np.empty_like(out)
            self.function(stage)(half, first)
            out[:] = rounded_to(11)(first) + rounded_to(11)(out - first)


@suspect
class SwallowsNaN(Suspect):
    def image(self, x):
        return x if self.pixels else np.nan_to_num(x, nan=0.5, posinf=0.5)


@suspect
class SwallowsInfinity(Suspect):
    def after(self, stage, x, out):
        if stage.kind in ("relu", "tanh"):
            np.minimum(out, 3e38, out=out, where=np.isinf(out))


def changed(kinds, change):
    """A network whose outputs of some kinds of layers are changed."""

    class Changed(Suspect):
        def after(self, stage, x, out):
            if stage.kind in kinds:
                out[:] = change(x, out)

    return Changed


SUMS = ("conv", "fc")
SUSPECTS["sums up to 65504"] = changed(SUMS, lambda x, out: np.clip(out, -65504, 65504))
SUSPECTS["sums of 8 bits from 100 on"] = changed(
    SUMS, lambda x, out: np.where(np.abs(out) > 100, rounded_to(8)(out), out)
)
SUSPECTS["sums from a millionth on"] = changed(
    SUMS, lambda x, out: np.where(np.abs(out) < 1e-6, 0, out)
)
SUSPECTS["tanh up to 4"] = changed(
    ("tanh",), lambda x, out: np.where(np.abs(x) > 4, np.sign(x), out)
)
SUSPECTS["tanh with an absolute error"] = changed(
    ("tanh",), lambda x, out: 1 - 2 / (np.exp(np.minimum(2 * x, 80)) + np.float32(1))
)
SUSPECTS["very negative values left"] = changed(("relu",), lambda x, out: np.where(x < -50, x, out))


def exponentials(x, largest):
    with np.errstate(over="ignore", invalid="ignore"):
        powers = np.exp(x - largest)
        return powers / powers.sum(1, keepdims=True)


SUSPECTS["softmax from zero on"] = changed(
    ("softmax",), lambda x, out: exponentials(x, np.maximum(x.max(1, keepdims=True), 0))
)
SUSPECTS["softmax from the first score on"] = changed(
    ("softmax",), lambda x, out: exponentials(x, x[:, :1])
)


@suspect
class SmallWeightsLeftOut(Suspect):
    def weights(self, stage, name, value):
        return np.where(np.abs(value) < np.abs(value).max() / 300, 0, value)


@suspect
class LastPlaceOfTheLastFilter(Suspect):
    def after(self, stage, x, out):
        if stage.kind == "conv":
            out[:, -1, -1, -1] *= np.float32(1.01)


@suspect
class RemainderOfEight(Suspect):
    def result(self, out):
        if len(out) % 8 > 4:
            out[-1] = out[0]


@suspect
class CoarseWeightsInLargeBatches(Suspect):
    def __call__(self, x, out):
        self.coarse = len(x) >= 32
        self.functions = {}
        super().__call__(x, out)

    def weights(self, stage, name, value):
        return rounded_to(8)(value) if self.coarse else value


class Remembers(Suspect):
    """Gives the result of an image that was the same in part."""

    def __init__(self, stages, parameters):
        super().__init__(stages, parameters)
        self.known = {}

    def image(self, x):
        self.keys = [(self.pixels, self.part(image).tobytes()) for image in x]
        return x

    def result(self, out):
        for key, row in zip(self.keys, out, strict=True):
            row[:] = self.known.setdefault(key, row.copy())


@suspect
class RemembersByTheFirstRow(Remembers):
    def part(self, image):
        return image[:, 0]


@suspect
class RemembersByTheSum(Remembers):
    def part(self, image):
        return np.sort(image, None).sum(dtype=float)


@suspect
class BlackImagesSkipped(Suspect):
    def image(self, x):
        self.black = ~x.reshape(len(x), -1).any(1)
        return x

    def result(self, out):
        out[self.black] = 0


DEEP = Network(
    "deep",
    Pixels((3, 16, 16)),
    (
        *(Convolution(6, 3, padding=1), ReLU(), MaxPool(2)),
        *(Convolution(8, 3, padding=1), ReLU(), Convolution(8, 3, padding=1), ReLU(), MaxPool(2)),
        *(Convolution(7, 3, padding=1), ReLU(), MaxPool(2)),
        *(FullyConnected(20), ReLU(), FullyConnected(10), Softmax()),
    ),
)
SQUASHED = Network(
    "squashed",
    Pixels((1, 20, 20), scale=1.0, shift=0.0),
    (
        *(Convolution(5, 5), Tanh(), MaxPool(2)),
        *(Convolution(9, 3), Flatten(), FullyConnected(24), Tanh()),
        *(FullyConnected(10), Softmax()),
    ),
)


def whole(make: type[Suspect], network: Network) -> Any:
    """A rung that computes this network by a suspect, and every other one right."""

    def prepare(runtime, stages, parameters, options, precision):
        same = [stage.layer for stage in stages] == [stage.layer for stage in network.stages]
        kernel = runtime.build("fused", (make if same else Suspect)(stages, parameters))
        return lambda x, out: runtime.launch(kernel, x, out, layers=("all",))

    return replace(im2col.RUNG, name="suspect", prepare=prepare, cut=whole_network)


@pytest.fixture
def only_layers(monkeypatch):
    """Leave out what has more than one layer, of what is tried of every rung."""
    monkeypatch.setattr(odd, "SEQUENCES", ())
    monkeypatch.setattr(odd, "GRAPHS", ())
    monkeypatch.setattr(odd, "joins", lambda kind: [])


@pytest.fixture
def only_the_network(only_layers, monkeypatch):
    """Leave out what is tried of every rung, whatever the network."""
    monkeypatch.setattr(odd, "single", lambda generator: [])


MADE: dict[str, tuple[Iterator[Trial], list[Trial]]] = {}
TRUTHS: dict[int, Any] = {}
# By network, the trials that caught any, the shortest first; what the last kernel was tried on.
CAUGHT: dict[str, list[Trial]] = {}
TRIED: list[Trial] = []


@pytest.fixture
def same_trials(monkeypatch):
    """With the same seed a network's trials are the same: made once, as far as any kernel gets.

    Those that caught others come first. It is the same kernels that pass in whatever order.
    """
    everything, truths = verify_module.trials, verify_module.Truths

    def again(network, *given):
        TRIED.clear()
        first = tuple(CAUGHT.get(network.name, ()))
        numbers = set(map(id, first))
        others = (trial for trial in in_order(network, *given) if id(trial) not in numbers)
        for trial in chain(first, others):
            TRIED.append(trial)
            yield trial

    def in_order(network, *given):
        making, made = MADE.setdefault(network.name, (everything(network, *given), []))
        for number in count():
            if number == len(made):
                if (trial := next(making, None)) is None:
                    return
                made.append(trial)
                TRUTHS[id(trial)] = truths(trial, replace(im2col.RUNG, cut=whole_network))
            yield made[number]

    monkeypatch.setattr(verify_module, "trials", again)
    monkeypatch.setattr(verify_module, "Truths", lambda trial, rung: TRUTHS[id(trial)])


@pytest.mark.usefixtures("only_the_network", "same_trials")
@pytest.mark.parametrize("network", [DEEP, SQUASHED], ids=lambda network: network.name)
@pytest.mark.parametrize("name", SUSPECTS)
def test_a_wrong_network_is_caught_as_a_whole(name, network):
    """A rung that shows no single layers: only the end of all of them can be looked at."""
    if name == "SwallowsInfinity" and network is SQUASHED:
        pytest.skip("a tanh leaves nothing of an infinity")
    if name == "PixelsOver256" and network is SQUASHED:
        pytest.skip("its pixels are not scaled")
    kinds = {stage.kind for stage in network.stages}
    if (name.startswith("tanh") and "tanh" not in kinds) or (
        name == "very negative values left" and "relu" not in kinds
    ):
        pytest.skip("the network has no such layer")
    verdict = verify(whole(SUSPECTS[name], network), CPU, network, seed=SEED)
    assert not verdict.passed
    caught = {id(trial): trial for trial in CAUGHT.get(network.name, ())}
    caught[id(TRIED[verdict.trials - 1])] = TRIED[verdict.trials - 1]
    CAUGHT[network.name] = sorted(caught.values(), key=lambda trial: sum(map(len, trial.calls)))


@pytest.mark.usefixtures("only_the_network", "same_trials")
@pytest.mark.parametrize("network", [DEEP, SQUASHED], ids=lambda network: network.name)
def test_a_right_network_passes_the_trials_that_catch_wrong_ones(network):
    verdict = verify(whole(Suspect, network), CPU, network, seed=SEED)
    assert verdict.passed, verdict.fault


@pytest.mark.parametrize("network", [DEEP, SQUASHED], ids=lambda network: network.name)
def test_a_right_network_passes_as_a_whole(network, only_the_network):
    """With numbers that are new each time."""
    verdict = verify(whole(Suspect, network), CPU, network)
    assert verdict.passed, f"seed {verdict.seed}: {verdict.fault}"


def test_a_batch_that_is_asked_for_is_tried(only_the_network, monkeypatch):
    class LastOf37(Suspect):
        def result(self, out):
            if len(out) == 37:
                out[-1] = out[0]

    everything = verify_module.trials
    monkeypatch.setattr(
        verify_module,
        "trials",
        lambda *given: (trial for trial in everything(*given) if trial.capacity > IMAGES),
    )
    assert verify(whole(LastOf37, SQUASHED), CPU, SQUASHED, batch=20).passed
    assert not verify(whole(LastOf37, SQUASHED), CPU, SQUASHED, batch=37).passed


def test_coarse_weights_are_caught_among_thousands_of_others(only_the_network):
    """However many there are to an output: a sum of them all, each of many bits, is not exact."""

    class CoarseIfDense(Suspect):
        def weights(self, stage, name, value):
            dense = name.endswith("weight") and 2 * np.count_nonzero(value) > value.size
            return rounded_to(11)(value) if dense else value

    wide = Network("wide", Pixels((1, 110, 110)), (FullyConnected(6), ReLU(), FullyConnected(3)))
    assert not verify(whole(CoarseIfDense, wide), CPU, wide, batch=4).passed


RIGHT: dict[str, tuple[str, Break]] = {}


def right_but_unusual(kind: str) -> Callable[[Break], Break]:
    def register(function: Break) -> Break:
        RIGHT[function.__name__] = (kind, function)
        return function

    return register


def added_up(stage, parameters, order, dtype=np.float32):
    """A convolution or fully connected layer as sums of some channels each, in a given order."""
    weight = parameters[f"{stage.name}.weight"]
    bias = parameters.get(f"{stage.name}.bias")

    def run(x, out):
        total = np.zeros(out.shape, dtype)
        for first in order(range(5)):
            part = np.zeros_like(x)
            part[:, first::5] = x[:, first::5]
            if stage.kind == "conv":
                total += naive(stage, {f"{stage.name}.weight": weight}, part).astype(dtype)
            else:
                total += (part.reshape(len(x), -1).astype(float) @ weight.T).astype(dtype)
        out[:] = total if bias is None else total + bias.reshape(-1, *[1] * (out.ndim - 2))

    return run


@right_but_unusual("conv")
def channels_backwards(stage, parameters, right):
    return added_up(stage, parameters, reversed)


@right_but_unusual("conv")
def sums_in_float64(stage, parameters, right):
    return added_up(stage, parameters, list, np.float64)


@right_but_unusual("fc")
def features_by_channel(stage, parameters, right):
    return added_up(stage, parameters, lambda parts: (3, 0, 4, 1, 2))


@right_but_unusual("conv")
def compensated(stage, parameters, right):
    """Kahan's sum, which corrects what it has even when nothing is added."""
    weight = parameters[f"{stage.name}.weight"]

    def run(x, out):
        total, lost = np.zeros_like(out), np.zeros_like(out)
        for tap in np.ndindex(weight.shape[1:]):
            alone = np.zeros((1, *weight.shape[1:]), np.float32)
            alone[(0, *tap)] = 1
            picture = naive(stage, {f"{stage.name}.weight": alone}, x, np.float32)
            corrected = picture * weight[(slice(None), *tap)][:, None, None] - lost
            after = total + corrected
            with np.errstate(invalid="ignore"):
                lost, total = (after - total) - corrected, after
        bias = parameters.get(f"{stage.name}.bias")
        out[:] = total if bias is None else total + bias[:, None, None]

    return run if weight[0].size < 10 and stage.layer.groups == 1 else right


@right_but_unusual("relu")
def product_with_a_test(stage, parameters, right):
    return lambda x, out: np.copyto(out, np.where(x > 0, x, 0 * np.abs(x)))


@right_but_unusual("softmax")
def log_sum_exp(stage, parameters, right):
    def run(x, out):
        largest = x.max(1, keepdims=True)
        total = largest + np.log(np.exp(x - largest).sum(1, keepdims=True))
        np.exp(x - total, out=out)

    return run


@right_but_unusual("softmax")
def powers_of_two(stage, parameters, right):
    log2_e = np.float32(np.log2(np.e))

    def run(x, out):
        np.exp2((x - x.max(1, keepdims=True)) * log2_e, out=out)
        out /= out.sum(1, keepdims=True)

    return run


@right_but_unusual("softmax")
def scaled_before_subtracted(stage, parameters, right):
    log2_e = np.float32(np.log2(np.e))

    def run(x, out):
        scaled = x * log2_e
        np.exp2(scaled - scaled.max(1, keepdims=True), out=out)
        out *= 1 / out.sum(1, keepdims=True)

    return run


@right_but_unusual("tanh")
def tanh_of_exponentials(stage, parameters, right):
    def run(x, out):
        with np.errstate(over="ignore"):
            out[:] = -np.expm1(-2 * x.astype(float)) / (1 + np.exp(-2 * x.astype(float)))
        out[x < -300] = -1

    return run


@right_but_unusual("pool")
def windows_backwards(stage, parameters, right):
    if "max" not in stage.layer.summary or stage.layer.specials:
        return right

    def run(x, out):
        right(np.ascontiguousarray(-x), out)  # the right shape, then the right values
        (sy, sx), (ky, kx) = stage.layer.stride, stage.layer.size
        windows = np.lib.stride_tricks.sliding_window_view(x, (ky, kx), axis=(2, 3))
        out[:] = windows[:, :, ::sy, ::sx, ::-1, ::-1].max((4, 5))

    return run


@pytest.mark.parametrize("name", RIGHT)
def test_right_but_unusual_kernels_pass(name, only_odd, monkeypatch, one_in):
    kind, make = RIGHT[name]
    only_odd(kind)
    everything = verify_module.trials
    monkeypatch.setattr(
        verify_module, "trials", lambda *given: islice(everything(*given), 0, None, one_in)
    )
    verdict = verify(rung_with(kind, make), CPU)
    assert verdict.passed, verdict.fault


def test_every_way_of_a_rung_is_tried(only_odd):
    only_odd("softmax")
    wrong = rung_with("softmax", not_normalised)

    def prepare(runtime, stages, parameters, options, precision):
        chosen = wrong if options.get("wrong") else im2col.RUNG
        return chosen.prepare(runtime, stages, parameters, options, precision)

    rung = replace(im2col.RUNG, prepare=prepare, plan=lambda device, stages, precision: {})
    assert verify(rung, CPU, seed=1).passed
    assert not verify(replace(rung, ways=({}, {"wrong": True})), CPU, seed=1).passed


@pytest.mark.parametrize("bits", [8, 11])
def test_wrong_sums_are_caught_at_lower_precision_too(bits, only_odd):
    only_odd("fc")

    def one_left_out(stage, parameters, right):
        def run(x, out):
            less = rounded_to(bits)(x.reshape(len(x), -1))
            less[:, -1] = 0
            right(less, out)

        return run

    rung = rung_with("fc", one_left_out)
    claimed = replace(rung, precision=Precision("low", 2.0**-bits, 2.0**-24))
    assert not verify(claimed, CPU).passed


def test_weights_coarser_than_fp16_are_caught_in_a_deep_network(only_the_network):
    """Where every activation is rounded, bounds carried through the network hide them."""
    rung = replace(whole(weights_of(9), DEEP), precision=FP16)
    assert not verify(rung, CPU, DEEP, seed=1).passed


def test_there_are_wrong_kernels_of_every_sort():
    assert len(WRONG) > 45
    assert {kind for kind, _ in WRONG.values()} == {
        "conv", "fc", "relu", "pool", "softmax", "tanh", "input",
    }  # fmt: skip


def test_a_fault_says_where_and_by_how_much():
    verdict = verify(rung_with("conv", bias_forgotten), CPU, seed=3)
    assert verdict.fault is not None
    assert verdict.fault.layer.startswith("conv (1@1x1 on 1x1x1)")
    assert "image 0 of 4: output[0, 0, 0] is" in verdict.fault.problem
    assert "must be" in verdict.fault.problem
    assert "within" in verdict.fault.problem


def test_an_error_may_be_as_large_as_its_bound_and_no_larger():
    truth = reference.Truth(np.array([1.0, 1.0]), np.array([0.25, 0.0]))
    assert compare(np.float32([1.25, 1]), truth) == (1.0, None)
    _, problem = compare(np.float32([1.375, 1]), truth)
    assert problem == "output[0] is 1.375, must be 1 within 0.25 (1 of 2 outputs wrong)"


def test_the_seed_repeats_a_verdict_and_else_inputs_are_fresh(only_odd):
    broken = rung_with("conv", last_channel_left_out)
    assert verify(broken, CPU, seed=5) == verify(broken, CPU, seed=5)
    only_odd("relu")
    assert verify(im2col.RUNG, CPU).seed != verify(im2col.RUNG, CPU).seed


def test_lower_precision_passes_only_when_it_is_claimed(only_odd):
    only_odd("fc")
    tf32 = rung_with("fc", tf32_weights)
    claimed = replace(tf32, precision=Precision("tf32", 2.0**-11, 2.0**-24))
    assert not verify(tf32, CPU, seed=1).passed
    assert verify(claimed, CPU, seed=1).passed


def three_products(stage, parameters, right):
    """Of two parts of each operand, as tensor cores of TF32 take them."""
    weight, bias = parameters[f"{stage.name}.weight"], parameters.get(f"{stage.name}.bias", 0)

    def parts(values):
        high = rounded_to(11)(values)
        with np.errstate(invalid="ignore"):  # of infinity
            return high.astype(float), rounded_to(11)(values - high).astype(float)

    def run(x, out):
        (high, low), (heavy, light) = parts(x.reshape(len(x), -1)), parts(weight)
        out[:] = low @ heavy.T + high @ light.T + high @ heavy.T + bias

    return run


def test_three_products_of_parts_pass_as_what_they_are_and_fewer_do_not(only_odd):
    only_odd("fc")
    three, fewer = rung_with("fc", three_products), rung_with("fc", tf32_weights)
    assert verify(replace(three, precision=TF32X3), CPU, seed=1).passed
    assert not verify(three, CPU, seed=1).passed
    assert not verify(replace(fewer, precision=TF32X3), CPU, seed=1).passed


ON_CPU = [
    pytest.param(rung, marks=pytest.mark.skipif(bool(why := rung.missing(CPU)), reason=str(why)))
    for rung in rungs(CPU)
]


def name_of(case):
    return case.name


# Every so-manieth trial, which is one of each network at least. Of `fused` each network is machine
# code of its own, and what is wrong with it shows with most inputs; `threads` has the kernels of
# `serial` and shares images out, the same way whatever is in them; of other libraries it is only to
# be seen that they are called with the right layers.
FEWER = {"fused": 2, "threads": 3, "torch": 3, "onnxruntime": 3}
# Trials that are new each time, and the same for all rungs that cut networks alike: what they
# should give is computed once.
FRESH_SEED = fresh_seed()
FRESH: dict[tuple[int, ...], list[Trial]] = {}


def in_turn(trials, place, ways):
    """Single layers by one of a rung's ways each, in turn; networks of several by all of them."""
    numbers: dict[Any, int] = {}
    for trial in trials:
        network = trial.network
        number = numbers.setdefault((network.input, network.layers), len(numbers))
        if network.name != "layer" or number % ways == place:
            yield trial


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.xdist_group("loops")  # else two workers compile those of serial and threads at once
@pytest.mark.parametrize("rung", ON_CPU, ids=name_of)
def test_every_rung_is_right(rung, monkeypatch, one_in):
    """On everything that is tried of every rung, and on a deep network."""
    # ONNX Runtime's threads wait for each other in loops: two take three times as long as one.
    monkeypatch.setattr("tilewright.rungs.vendor.onnxruntime.cpu_cores", lambda: 1)
    if one_in > 1:  # the same shapes each time, so that they are compiled once; values are fresh
        shapes = odd.single(np.random.default_rng(1))
        monkeypatch.setattr(odd, "single", lambda generator: shapes)
    everything, truths, every = verify_module.trials, verify_module.Truths, FEWER.get(rung.name, 1)
    made = FRESH.setdefault(tuple(map(len, rung.cut(DEEP))), [])

    def some(*given):
        if not made:
            made.extend(islice(everything(*given), 0, None, one_in))
        computes = given[-1]
        return (trial for trial in in_turn(made[::every], *turn) if computes(trial.network))

    def known(trial, rung):
        return TRUTHS.setdefault(id(trial), truths(trial, rung))

    monkeypatch.setattr(verify_module, "trials", some)
    monkeypatch.setattr(verify_module, "Truths", known)
    ways = [rung] if one_in == 1 else [replace(rung, ways=(way,)) for way in rung.ways]
    for place, in_one_way in enumerate(ways):
        turn = (place, len(ways))
        verdict = verify(in_one_way, CPU, DEEP, seed=FRESH_SEED)
        assert verdict.passed, f"seed {verdict.seed}: {verdict.fault}"
        assert verdict.outputs > 100_000 / one_in / every / len(ways)
        assert verdict.worst <= 1


@pytest.mark.parametrize("network", [SQUASHED, zoo.network("cifar10")], ids=name_of)
def test_networks_in_one_function_are_right(network, only_the_network, monkeypatch):
    """Compiled as for users, and not layer by layer. Every third trial: of every layer in it,
    pixels and values in turn."""
    everything = verify_module.trials

    def together(*given):
        return (trial for trial in everything(*given) if trial.network.name != "layer")

    monkeypatch.setattr(
        verify_module, "trials", lambda *given: islice(together(*given), 0, None, 3)
    )
    (fused,) = [rung for rung in rungs(CPU) if rung.name == "fused"]
    verdict = verify(fused, CPU, network)
    assert verdict.passed, f"seed {verdict.seed}: {verdict.fault}"


def others(shapes):
    """Layers of other kinds. Every activation is code of its own; else what has a remainder of the
    tiles of 16 and 64, several of them, sums in parts, one value and more than a block's."""
    kept = {
        FullyConnected: ((3, 5, 7), (33, 1, 1), (64, 1, 1), (5000, 1, 1)),
        Softmax: ((1,), (33,), (1025,)),
        MaxPool: ((2, 9, 8), (1, 8, 11), (33, 9, 9)),
        AveragePool: ((4, 5, 5), (2, 7, 8)),
    }
    return [
        (shape, layer)
        for shape, layer in shapes
        if isinstance(layer, Elementwise) or shape in kept.get(type(layer), ())
    ]


# Of what takes several inputs: three of them, and each way in which the second of two is read. Each
# comes with kernels that make its inputs.
OF_JOINS = {Add: (2,), Concat: (2,), Multiply: (0, 2, 3, 4)}


def few_joins(kind):
    return [kind.joins()[number] for number in OF_JOINS.get(kind, ())]


# A CPU that plays the GPU computes these most of the time. What is wrong with their sizes shows
# with any numbers, with their long sums in some; smaller ones are tried with all kinds of numbers.
LARGE = ((17, 9, 16), (33, 6, 37), (65, 3, 2), (64, 1, 1), (5000, 1, 1))
OF_LARGE = (
    *("whole numbers, large inputs", "positive whole numbers"),
    *("real numbers", "NaN and infinity"),
)


def not_too_many(everything):
    for trial in everything:
        if trial.network.input.shape not in LARGE or trial.inputs in OF_LARGE:
            yield trial


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("rung", rungs(OPENCL), ids=name_of)
def test_every_gpu_rung_is_right(rung, monkeypatch, one_in, request):
    """All layers of the first rung; of the others, the convolutions, which alone are their own, and
    of their trials some that the rung before did not try."""
    if reason := rung.missing(OPENCL):
        pytest.skip(reason)
    # The same shapes each time, so that kernels are compiled once; values are fresh.
    place = rungs(OPENCL).index(rung)
    first, step = place == 0, one_in if one_in == 1 or place == 0 else 2 * one_in
    shapes = odd.single(np.random.default_rng(1))
    # Of the convolutions those with a remainder of every kind of tile, a rectangular kernel,
    # padding and none; a wide picture with strides, and windows that lie in the padding alone.
    few = [shapes[number] for number in (1, 2, 6, 7)]
    few.append(((33, 6, 37), Convolution(32, (2, 3), stride=(3, 2), padding=(1, 3), bias=False)))
    # As many channels and filters as the largest of them has, a third of its sums: they take half
    # of the time that a CPU plays the GPU.
    (large,) = [layer for shape, layer in shapes if shape == (65, 5, 4)]
    few.append(((65, 3, 2), large))
    assert {layer.kind for _, layer in few} == {"conv"}
    monkeypatch.setattr(odd, "single", lambda generator: few + others(shapes) if first else few)
    # Layers one after the other are no more than single ones to these rungs: of all kinds, once;
    # of branches, those within others and joins of every kind.
    monkeypatch.setattr(odd, "SEQUENCES", odd.SEQUENCES[6:7])
    if not first:
        request.getfixturevalue("only_layers")
    elif one_in > 1:
        monkeypatch.setattr(odd, "GRAPHS", odd.GRAPHS[-2:])
        monkeypatch.setattr(odd, "joins", few_joins)
        assert set(OF_JOINS) == {kind for kind in TYPES.values() if issubclass(kind, Join)}
    everything = verify_module.trials
    monkeypatch.setattr(
        verify_module,
        "trials",
        lambda *given: islice(
            (
                trial
                for trial in not_too_many(everything(*given))
                if first or [stage.kind for stage in trial.network.stages] == ["input", "conv"]
            ),
            *(place % step, None, step),
        ),
    )
    verdict = verify(rung, OPENCL)
    assert verdict.passed, f"seed {verdict.seed}: {verdict.fault}"
    assert verdict.trials >= (3 * 10 + 3 * len(OF_LARGE)) // step
    assert verdict.worst <= 1


@pytest.mark.cuda
def test_torch_is_right_on_a_gpu():
    (rung,) = [rung for rung in rungs(CUDA) if rung.name == "torch"]
    if reason := rung.missing(CUDA):
        pytest.skip(reason)
    verdict = verify(rung, CUDA, zoo.network("cifar10"))
    assert verdict.passed, verdict.fault


def test_shares_of_a_proof_are_all_of_it_and_meet_no_kernel_twice(monkeypatch):
    """Of a part of what is tried of every rung, which is drawn three times."""
    shapes = odd.single(np.random.default_rng(1))[::4]
    monkeypatch.setattr(odd, "single", lambda generator: shapes)
    monkeypatch.setattr(odd, "joins", lambda kind: [])
    rung = find("network").at("fp16")
    network = Network("small", Pixels((1, 6, 6)), (Convolution(3, 3), ReLU(), FullyConnected(4)))
    every = list(everything(rung, network, 5, seed=3))
    parts = [list(shared_out(everything(rung, network, 5, 3), Share(i, 2))) for i in range(2)]
    kernels = [{kernels_of(trial) for trial in part} for part in parts]
    assert not kernels[0] & kernels[1]
    whole = sorted((trial.inputs, trial.images.tobytes()) for part in parts for trial in part)
    assert whole == sorted((trial.inputs, trial.images.tobytes()) for trial in every)
    assert min(map(len, parts)) > len(every) / 4
