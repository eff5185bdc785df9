"""Fast algorithms pass in their class, and are exact where they can be; no other kernel gains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.own_kernels import OUT_OF_CLASS
from tests.truth.test_diagnose import needs_opencl, proven
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.precision import (
    CLASSES,
    FLOAT32,
    WINOGRAD_2,
    WINOGRAD_2_OF_5,
    WINOGRAD_4,
    Transforms,
)
from tilewright.rungs.cpu import im2col
from tilewright.runtime.device import CPU
from tilewright.truth import reference
from tilewright.truth.diagnose import diagnose, words
from tilewright.truth.trials import layer_trials
from tilewright.truth.verify import prove

SHAPES = [((7, 9, 8), Convolution(4, 3, padding=1)), ((3, 12, 7), Convolution(5, 3, bias=False))]


def rung(convolve, precision):
    """im2col with convolutions of another kind, from a padded batch, weights and output sizes."""

    def prepare(runtime, stages, parameters, *choices):
        (stage,) = stages
        if stage.kind != "conv":
            return im2col.RUNG.prepare(runtime, stages, parameters, *choices)
        weight = parameters[f"{stage.name}.weight"]
        bias = parameters.get(f"{stage.name}.bias", np.zeros(len(weight), np.float32))
        pad_y, pad_x = stage.layer.padding[:2]

        def launch(x, out):
            padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
            with np.errstate(all="ignore"):
                out[:] = convolve(padded, weight, out.shape[2:]) + bias[:, None, None]

        return launch

    return replace(im2col.RUNG, prepare=prepare, precision=CLASSES[precision])


def winograd(transforms: Transforms, shift: int = 0):
    """All in float32; tiles may begin before the first output."""
    inverse, filters, inputs = (np.array(each, np.float32) for each in transforms.matrices)
    outputs, size = transforms.outputs, len(inputs)

    def convolve(x, weight, sizes):
        tiles = [-(-(each + shift) // outputs) for each in sizes]
        ends = [n * outputs + size - have for n, have in zip(tiles, x.shape[2:], strict=True)]
        x = np.pad(x, ((0, 0), (0, 0), *((shift, max(0, end)) for end in ends)))
        made = np.zeros((len(x), len(weight), *(n * outputs for n in tiles)), np.float32)
        u = np.einsum("iu,fcuv,jv->fcij", filters, weight, filters)
        for row in range(tiles[0]):
            for column in range(tiles[1]):
                y, xx = row * outputs, column * outputs
                d = x[:, :, y : y + size, xx : xx + size]
                v = np.einsum("iu,ncuv,jv->ncij", inputs, d, inputs)
                m = np.einsum("fcij,ncij->nfij", u, v)
                made[:, :, y : y + outputs, xx : xx + outputs] = np.einsum(
                    "pi,nfij,qj->nfpq", inverse, m, inverse
                )
        return made[:, :, shift : shift + sizes[0], shift : shift + sizes[1]]

    return convolve


def fft(x, weight, sizes):
    """NumPy transforms float32 in float32."""
    whole = x.shape[2:]
    spectrum = np.einsum(
        "ncyx,fcyx->nfyx", np.fft.rfft2(x, whole), np.conj(np.fft.rfft2(weight, whole))
    )
    return np.fft.irfft2(spectrum.astype(np.complex64), whole)[:, :, : sizes[0], : sizes[1]]


ALGORITHMS = {
    "fp32-winograd": (winograd(WINOGRAD_2), winograd(WINOGRAD_2, shift=1)),
    "fp32-winograd4": (winograd(WINOGRAD_4), winograd(WINOGRAD_4, shift=3)),
    "fp32-fft": (fft,),
}


def verdict(made):
    generator = np.random.default_rng(3)
    tried = (
        trial
        for shape, layer in SHAPES
        for trial in layer_trials(shape, layer, made.precision, generator)
    )
    return prove(made, CPU, tried, 3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_fast_algorithms_pass_in_their_class_alone(name):
    for convolve in ALGORITHMS[name]:
        assert verdict(rung(convolve, name)).fault is None
        assert verdict(rung(convolve, "fp32")).fault is not None


def test_the_bound_is_not_needlessly_wide():
    """What a right kernel uses of it is a share that one can measure."""
    assert verdict(rung(winograd(WINOGRAD_2), "fp32-winograd")).worst > 0.01
    assert verdict(rung(winograd(WINOGRAD_4), "fp32-winograd4")).worst > 0.001


@needs_opencl
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("name", OUT_OF_CLASS)
def test_nothing_hides_in_a_class_that_it_does_not_belong_to(name, tmp_path):
    fault = proven(OUT_OF_CLASS[name], tmp_path).fault
    assert fault is not None
    assert diagnose(fault.evidence).words[0] == words.PRECISION


def truth(precision, layer=SHAPES[0][1], whole=True):
    generator = np.random.default_rng(1)
    network = Network("one", Pixels((7, 9, 8)), (layer,))
    parameters = {
        name: generator.integers(-3, 4, shape).astype(np.float32) / (1 if whole else 3)
        for name, shape in network.parameter_shapes.items()
    }
    x = generator.integers(-99, 100, (2, 7, 9, 8)).astype(np.float32)
    return reference.layer(network.stages[1], parameters, x, precision=CLASSES[precision])


def test_whole_numbers_are_exact_where_transforms_are_dyadic():
    assert WINOGRAD_2.step == 0.5 and WINOGRAD_4.step is None
    assert not truth("fp32-winograd").bound.any()
    assert truth("fp32-winograd4").bound.all()
    assert truth("fp32-fft").bound.all()


def test_a_fast_algorithm_has_more_room_than_a_sum_and_not_all():
    direct = truth("fp32", whole=False)
    for name in ALGORITHMS:
        fast = truth(name, whole=False)
        assert np.array_equal(fast.value, direct.value)
        assert (fast.bound > direct.bound).all()
        assert fast.bound.max() < 2.0**-9 * np.abs(direct.value).max()


@pytest.mark.parametrize("layer", [Convolution(4, 5), Convolution(4, 3, stride=2)])
def test_other_layers_are_held_to_the_direct_sum(layer):
    assert np.array_equal(truth("fp32", layer).bound, truth("fp32-winograd", layer).bound)


def test_kernels_of_5x5_have_a_bound_that_what_is_less_exact_does_not_meet():
    """F(2x2, 5x5) itself is within it, and what has eight bits left before is not."""
    layer = Convolution(4, 5)
    generator = np.random.default_rng(4)
    x = generator.normal(size=(2, 7, 9, 8)).astype(np.float32)
    network = Network("one", Pixels((7, 9, 8)), (layer,))
    weight = generator.normal(size=(4, 7, 5, 5)).astype(np.float32)
    parameters = {"conv.weight": weight, "conv.bias": np.zeros(4, np.float32)}
    found = reference.layer(network.stages[1], parameters, x, precision=CLASSES["fp32-winograd4"])
    direct = reference.layer(network.stages[1], parameters, x)
    assert (found.bound > direct.bound).all()
    convolve = winograd(WINOGRAD_2_OF_5)
    assert (np.abs(convolve(x, weight, (5, 4)) - found.value) <= found.bound).all()
    coarse = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert (np.abs(convolve(coarse, weight, (5, 4)) - found.value) > found.bound).any()


def test_transforms_compute_a_correlation():
    generator = np.random.default_rng(2)
    for each in (WINOGRAD_2, WINOGRAD_4, WINOGRAD_2_OF_5):
        inverse, filters, inputs = map(np.array, each.matrices)
        d, g = generator.normal(size=len(inputs)), generator.normal(size=each.taps)
        expected = [d[i : i + each.taps] @ g for i in range(each.outputs)]
        assert np.allclose(inverse @ ((filters @ g) * (inputs @ d)), expected)


def test_fp32_is_not_among_the_fast_ones():
    assert FLOAT32.fast is None and len(CLASSES) == 7
