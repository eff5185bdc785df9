from __future__ import annotations

import threading
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests.examples import examples
from tests.fuse.cpu.branches import BRANCHES
from tests.fuse.cpu.machines import ON_THIS_CPU, runnable
from tests.strategies import every_network
from tilewright.data import catalogue
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu import build, run, shares, together
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.shares import room
from tilewright.fuse.cpu.team import team
from tilewright.fuse.cpu.together import DEFAULT, Rules
from tilewright.model import zoo
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.load import load_parameters
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

X86_LEVELS = [
    pytest.param(level, marks=pytest.mark.skipif(absent, reason=f"this CPU has no {level}"))
    for level in ("avx2", "avx", "sse")
    for absent in [f"+{'sse2' if level == 'sse' else level}" not in build.host().features]
]


# Costs of a single image that leave no choice.
BY_CHANNELS, BY_IMAGES = 0.0, float("inf")


def filled(network, seed=0):
    return network.with_parameters(random_parameters(network, np.random.default_rng(seed)))


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("level", X86_LEVELS)
@examples(8)
@given(
    network=every_network,
    images=st.integers(1, 70),
    seed=st.integers(0, 999),
    pixels=st.booleans(),
)
def test_any_network_on_every_level_of_vectors(level, network, images, seed, pixels):
    """As many images as may come; by each schedule alone, around the width of a vector, where a
    lane too many or too few would show. What is compiled is the same."""
    on = build.restricted(level)
    lanes = on.target.lanes
    around = (1, 2, 3, lanes - 1, lanes, lanes + 1)
    ready = filled(network, seed)
    for single, sizes in ((None, (images,)), (BY_CHANNELS, around), (BY_IMAGES, around)):
        check(ready, on, single, sizes, seed, pixels)


@pytest.mark.usefixtures("not_optimised")
@examples(6)
@given(
    network=every_network,
    images=st.integers(1, 70),
    rules=st.builds(
        Rules, st.tuples(st.integers(1, 2), st.integers(1, 3)),
        st.tuples(st.integers(1, 3), st.integers(1, 6)), st.integers(1, 5),
        st.sampled_from([1024, 16384]),
    ),
)  # fmt: skip
def test_any_network_by_any_rules(network, images, rules):
    check(filled(network), build.host(), BY_IMAGES, [images], 1, True, rules)


def check(network, on, single, sizes, seed, pixels, rules=DEFAULT):
    """Outputs for batches of these sizes are within their bounds."""
    within(
        FusedNetwork(network, on, single, rules), sizes, *case(network, max(sizes), seed, pixels)
    )


def case(network, count, seed, pixels):
    """Images, and what the network makes of them."""
    size = (count, *network.input.shape)
    generator = np.random.default_rng(seed)
    if pixels:
        images = generator.integers(0, 256, size, np.uint8)
    else:
        images = generator.normal(size=size).astype(np.float32)
    return images, reference.chain(network.stages, network.parameters, images)[-1]


def within(fused, sizes, images, truth):
    for count in sizes:
        part = reference.Truth(truth.value[:count], truth.bound[:count])
        _, problem = compare(fused(images[:count]), part)
        assert problem is None, f"{count} images: {problem}"


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(
    ("shape", "layers"),
    [
        ((2, 20, 19), (Convolution(3, 13, padding=6), Flatten())),  # rows of the kernel in a loop
        ((1, 9, 9), (Convolution(2, 9, padding=4), MaxPool(3))),
        ((3, 5, 5), (Convolution(2, 3, padding=4), Flatten())),  # windows wholly outside
        ((4, 16, 16), (Convolution(70, 3), Convolution(5, 3, stride=2), Flatten())),
        ((20, 20, 20), (FullyConnected(130), Tanh(), FullyConnected(7), Softmax())),
        ((9, 40, 40), (MaxPool((7, 1), stride=(2, 3)), Flatten())),
        ((1, 1, 1), (Tanh(), Flatten(), Softmax())),
        ((1, 1, 1), (Convolution(2, 1, stride=5, padding=1),)),  # no tap inside at all
        ((37, 1, 1), (Flatten(), Softmax())),
        ((5, 4, 3), (ReLU(), MaxPool(2, stride=1), Flatten(), Softmax())),  # gaps between channels
        ((5, 4, 3), (ReLU(), Flatten(), Tanh())),
        ((3, 6, 5), (MaxPool(2), FullyConnected(17), Tanh())),
        ((3, 9, 9), (Convolution(11, 3), Flatten(), ReLU(), FullyConnected(9))),
    ],
)
def test_odd_networks(shape, layers):
    network = filled(Network("odd", Pixels(shape), layers))
    images, truth = case(network, 100, 1, True)
    for single in (None, BY_CHANNELS, BY_IMAGES):
        within(FusedNetwork(network, single=single), (1, 7, 33, 100), images, truth)


@cache
def branch(name):
    """A network with branches, with pixels and values and what it makes of them."""
    network = filled(BRANCHES[name])
    return network, [case(network, 70, 1, pixels) for pixels in (True, False)]


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("level", ON_THIS_CPU)
@pytest.mark.parametrize("name", BRANCHES)
def test_branches(name, level):
    network, cases = branch(name)
    for single in (BY_CHANNELS, BY_IMAGES):
        fused = FusedNetwork(network, runnable()[level], single)
        for images, truth in cases:
            within(fused, (1, 19, 70), images, truth)


@pytest.mark.parametrize("level", X86_LEVELS)
def test_tanh_and_exp_are_within_their_ulp_everywhere(level):
    """Every thousandth float32 from the smallest to beyond where tanh is 1."""
    values = np.arange(0, 0x42200000, 1001, dtype=np.uint32).view(np.float32)
    values = np.concatenate([values, -values])[:2_200_000].reshape(1, 1, 2200, 1000)
    network = Network("t", Pixels((1, 2200, 1000)), (Tanh(),))
    result = FusedNetwork(network, build.restricted(level))(values)
    exact = np.tanh(values.astype(np.float64))
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    assert (np.abs(result - exact) <= 3 * spacing + 2.0**-126).all()


def test_predictions_on_real_images_are_the_references(thesis_weights, thesis_images):
    """A hundred images, one by one and all at once.

    Only where the reference's two best scores agree to 16 bits may the other one win. The carried
    worst-case bound would excuse far more: after five layers it is as large as the scores.
    """
    network = load_parameters(zoo.network("cifar10"), "cifar10", thesis_weights)
    images = catalogue.open_data(str(thesis_images), network.input.shape, 100).images
    fused = FusedNetwork(network)
    together = fused(images).argmax(1)
    alone = np.concatenate([fused(images[i : i + 1]) for i in range(len(images))]).argmax(1)
    scores = network.stages[:-1]
    value = reference.chain(scores, network.parameters, images)[-1].value
    second, best = np.sort(value, axis=1)[:, -2:].T
    clear = best - second > 2.0**-16 * np.abs(value).max(1)
    for predicted in (together, alone):
        assert (predicted == value.argmax(1))[clear].all()
    assert clear.mean() > 0.95


def test_many_threads_may_call_at_once():
    network = tilewright.load("cifar10")
    fused = tilewright.compile(network)
    generator = np.random.default_rng(0)
    batches = [generator.integers(0, 256, (n, 3, 32, 32), np.uint8) for n in (5, 64, 33, 100)] * 3
    expected = [fused(batch) for batch in batches]
    results: dict[int, np.ndarray] = {}

    def call(index):
        results[index] = fused(batches[index])

    threads = [threading.Thread(target=call, args=(i,)) for i in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, value in enumerate(expected):
        np.testing.assert_array_equal(results[index], value)


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("columns", [1, 2, 5])
@pytest.mark.parametrize("kernel", [3, 13])
def test_columns_of_tiles_may_be_done_a_few_at_a_time(kernel, columns, monkeypatch):
    """Also where those at the borders are windows of a pooling, which a tile has several of."""
    layers = (Convolution(5, kernel, padding=kernel // 2), ReLU(), MaxPool(2), Convolution(4, 3))
    network = filled(Network("n", Pixels((1, 26, 27)), layers))
    images, truth = case(network, 20, 1, True)
    rules = Rules(windows=(1, 2))
    # Tiles have 2x4 positions and read a channel of every lane.
    read = 4 * (kernel + 1) * 4 * build.host().target.lanes
    monkeypatch.setattr(together, "STAYING_BYTES", columns * read)
    for single in (BY_IMAGES, BY_CHANNELS):
        fused = FusedNetwork(network, single=single, rules=rules)
        within(fused, (20,), images, truth)
    group = fused.many.schedule.groups[0]
    assert group.columns_at_once == columns < group.columns[-1].last


@pytest.mark.usefixtures("not_optimised")
def test_what_leaves_no_choice_is_compiled_when_it_is_needed(monkeypatch):
    # Few images that wait for each other in memory: more than it has room for go the other way.
    monkeypatch.setattr(together, "LARGE_WEIGHTS_BYTES", 0)
    layers = (Convolution(2, 2), Flatten(), FullyConnected(5), Tanh())
    network = filled(Network("n", Pixels((1, 3, 3)), layers))
    plans = []

    def counted(network, on, folder, plan):
        plans.append("few" if plan.one_by_one else "many")
        return build.compile_network(network, on, folder, plan)

    monkeypatch.setattr(run, "compile_network", counted)
    beyond = room(build.host().target.lanes, team().cores) + 1
    images, truth = case(network, beyond, 1, True)
    for single, first, all_of_them in (
        (None, ["many", "few"], ["many", "few"]),
        (BY_IMAGES, ["many"], ["many"]),
        (BY_CHANNELS, ["few"], ["few", "many"]),
    ):
        plans.clear()
        fused = FusedNetwork(network, single=single)
        within(fused, (1,), images, truth)
        assert plans == first
        within(fused, (beyond,), images, truth)
        assert plans == all_of_them


def test_a_batch_in_many_jobs(monkeypatch):
    """As more images than tickets can be numbered, or than are computed in a second."""
    network = filled(Network("n", Pixels((2, 9, 9)), (Convolution(5, 3), MaxPool(2), Tanh())))
    images = np.random.default_rng(0).integers(0, 256, (217, 2, 9, 9), np.uint8)
    expected = FusedNetwork(network)(images)
    monkeypatch.setattr(shares, "MOST_TICKETS", 3)
    np.testing.assert_array_equal(FusedNetwork(network)(images), expected)
    monkeypatch.setattr(shares, "JOB_CYCLES", 1.0)
    fused = FusedNetwork(network)
    np.testing.assert_array_equal(fused(images), expected)
    (made,) = fused.jobs.values()
    assert len(made) > 2


def test_what_it_is_given_is_checked():
    fused = tilewright.compile(tilewright.load("cifar10"))
    with pytest.raises(TilewrightError, match="images are 3x31x32, but 'cifar10' takes 3x32x32"):
        fused(np.zeros((1, 3, 31, 32), np.uint8))
    with pytest.raises(TilewrightError, match="no weights"):
        tilewright.compile(tilewright.load("ece408-2017"))
    assert fused(np.zeros((0, 3, 32, 32), np.uint8)).shape == (0, 10)
    assert fused(np.zeros((0, 3, 32, 32), np.float32)).shape == (0, 10)


@pytest.fixture(scope="module")
def tiny():
    return FusedNetwork(filled(Network("tiny", Pixels((2, 3, 4)), (Tanh(), Flatten()))))


GENERATOR = np.random.default_rng(5)
PIXELS = GENERATOR.integers(0, 256, (5, 2, 3, 4), np.uint8)
VALUES = GENERATOR.normal(size=(5, 2, 3, 4)).astype(np.float32)


class Arraylike:
    """An array of another library's, by NumPy's protocol."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Exchanged:
    """An array of another library's, by the protocol of all."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (PIXELS.astype(np.int64), "images are int64: give uint8 .* x.astype.np.uint8."),
        (PIXELS.astype(np.float64), "images are float64: .* x.astype.np.float32."),
        (VALUES.astype(np.float16), "images are float16"),
        (PIXELS > 9, "images are bool"),
        (PIXELS.astype(np.int8), "images are int8"),
        (PIXELS.astype(np.uint16), "images are uint16"),
        (VALUES.astype(np.complex64), "images are complex64"),
        (PIXELS.astype(object), "images are object"),
        (PIXELS.astype("S3"), r"images are .S3"),
        (np.zeros((5, 2, 3, 4), [("a", np.uint8)]), "images are .*'a'"),
        (np.ma.MaskedArray(VALUES, VALUES > 0), "images are a masked array"),
        (PIXELS.tolist(), "images are of type list: give a NumPy array"),
        ((), "images are of type tuple"),
        (None, "images are of type NoneType"),
        (PIXELS.tobytes(), "images are of type bytes"),
        (PIXELS[0], r"shape \(2, 3, 4\), but 'tiny' takes batches of 2x3x4: \(images, 2, 3, 4\)"),
        (PIXELS[None], r"shape \(1, 5, 2, 3, 4\), but 'tiny'"),
        (np.uint8(3), r"shape \(\), but 'tiny'"),
        (np.zeros((0, 2, 3, 5), np.uint8), "images are 2x3x5, but 'tiny' takes 2x3x4"),
    ],
)
def test_what_could_be_meant_otherwise_is_refused(tiny, images, words):
    """In one line that says what to do."""
    with pytest.raises(TilewrightError, match=words) as error:
        tiny(images)
    assert "\n" not in str(error.value)


def test_arrays_of_any_layout_are_taken(tiny):
    for values in (PIXELS, VALUES):
        expected = tiny(values.copy())
        read_only = values.copy()
        read_only.flags.writeable = False
        wide = np.zeros((10, 2, 3, 8), values.dtype)
        wide[::2, :, :, ::2] = values
        backwards = np.ascontiguousarray(values[::-1, ::-1])[::-1, ::-1]
        room = np.zeros(values.nbytes + 1, np.uint8)
        odd = room[1:].view(values.dtype).reshape(values.shape)  # at an odd address
        odd[:] = values
        for same in (
            read_only, wide[::2, :, :, ::2], backwards, np.asfortranarray(values), odd,
            values.astype(values.dtype.newbyteorder()),
        ):  # fmt: skip
            before = same.copy()
            np.testing.assert_array_equal(tiny(same), expected)
            np.testing.assert_array_equal(same, before)


def test_arrays_of_other_libraries_are_taken(tiny):
    for values in (PIXELS, VALUES):
        for library in (Arraylike, Exchanged):
            np.testing.assert_array_equal(tiny(library(values)), tiny(values))


def test_what_another_library_does_not_hand_out(tiny):
    class OnGpu:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("it is on cuda:0\nand more")

    with pytest.raises(TilewrightError, match=r"OnGpu cannot be read .*: it is on cuda:0$"):
        tiny(OnGpu())


def test_tensors(tiny):
    torch = pytest.importorskip("torch")
    for values in (PIXELS, VALUES):
        np.testing.assert_array_equal(tiny(torch.from_numpy(values)), tiny(values))
    with pytest.raises(TilewrightError, match="images are int64"):
        tiny(torch.from_numpy(PIXELS).long())
    with pytest.raises(TilewrightError, match=r"torch\.Tensor cannot be read .* requires grad"):
        tiny(torch.from_numpy(VALUES.copy()).requires_grad_())


def test_nan_comes_out_as_nan():
    for layer in (Tanh(), ReLU(), MaxPool(2), MaxPool(3, stride=1), Convolution(1, 1)):
        network = filled(Network("n", Pixels((1, 4, 4)), (layer,)))
        images = np.zeros((2, 1, 4, 4), np.float32)
        images[1, 0, 1, 1] = np.nan
        result = FusedNetwork(network)(images)
        assert np.isfinite(result[0]).all()
        assert np.isnan(result[1]).any(), layer


def test_the_time_of_every_part_is_counted():
    fused = FusedNetwork(tilewright.load("cifar10"))
    images = np.zeros((64, 3, 32, 32), np.uint8)
    outputs = np.empty((64, 10), np.float32)
    # The least of several: a thread that the system stops in mid-part counts on.
    ticks = np.min([fused.run(images, outputs) for _ in range(9)], axis=0)
    assert len(ticks) == len(fused.parts) == 6
    assert (ticks > 0).all()
    assert ticks[2] == ticks.max()  # conv2 has half of the arithmetic
