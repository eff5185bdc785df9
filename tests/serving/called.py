"""What any compiled network must do with arrays of the host's memory: the same on every device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.model.layers import Convolution, FullyConnected, MaxPool, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

BARE = Network(
    "small",
    Pixels((2, 9, 8)),
    (Convolution(3, 3, padding=1), ReLU(), MaxPool(2), FullyConnected(5), Softmax()),
)
SMALL = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(0)))


class Exchanged:
    """An array of some library that knows DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class OnGpu(Exchanged):
    def __dlpack_device__(self) -> Any:
        return (2, 0)


def pixels(count: int, seed: int = 1) -> np.ndarray:
    size = (count, *SMALL.input.shape)
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def values(count: int, seed: int = 1) -> np.ndarray:
    size = (count, *SMALL.input.shape)
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def check_values(call: Callable[..., Any], counts: tuple[int, ...]) -> None:
    for make in (pixels, values):
        for count in counts:
            images = make(count)
            got = call(images)
            assert type(got) is np.ndarray and got.dtype == np.float32
            truth = reference.chain(SMALL.stages, SMALL.parameters, images)[-1]
            _, problem = compare(got, truth)
            assert problem is None, f"{count} images: {problem}"
    assert call(pixels(0)).shape == (0, 5)
    assert call(np.full((1, 2, 9, 8), np.nan, np.float32)).shape == (1, 5)
    assert np.isnan(call(np.full((1, 2, 9, 8), np.nan, np.float32))).all()


def check_kinds(call: Callable[..., Any]) -> None:
    """The caller's kind of array in and out."""
    torch = pytest.importorskip("torch")
    for images in (pixels(3), values(3)):
        expected = call(images)
        tensor = call(torch.from_numpy(images))
        assert type(tensor) is torch.Tensor
        np.testing.assert_array_equal(tensor.numpy(), expected)
        exchanged = call(Exchanged(images))
        assert type(exchanged) is np.ndarray
        np.testing.assert_array_equal(exchanged, expected)
        turned = np.ascontiguousarray(images.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
        assert not turned.flags.c_contiguous
        np.testing.assert_array_equal(call(turned), expected)


def check_out(call: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    images, expected = pixels(3), call(pixels(3))
    for out in (np.full((3, 5), np.nan, np.float32), torch.full((3, 5), torch.nan)):
        assert call(images, out=out) is out
        np.testing.assert_array_equal(np.asarray(out), expected)
    out = torch.full((3, 5), torch.nan)
    assert call(torch.from_numpy(images), out=out) is out
    np.testing.assert_array_equal(out.numpy(), expected)
    whole = np.full((5, 5), 7, np.float32)
    call(images, out=whole[1:4])
    np.testing.assert_array_equal(whole[1:4], expected)
    assert (whole[[0, 4]] == 7).all()


def refused(call: Callable[..., Any], words: str, *given: Any, **more: Any) -> None:
    with pytest.raises(TilewrightError, match=words) as caught:
        call(*given, **more)
    assert "\n" not in str(caught.value)


def check_refusals(call: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    for kind in ("float64", "int64", "float16", "int8", "bool"):
        refused(call, rf"images are {kind}: .*x\.astype\(np\.uint8\)", pixels(2).astype(kind))
    refused(call, "images are float64", torch.from_numpy(pixels(2)).double())
    refused(call, "images are 2x9x9, but 'small' takes 2x9x8", np.zeros((1, 2, 9, 9), np.uint8))
    refused(call, r"array of shape \(2, 9, 8\)", np.zeros((2, 9, 8), np.uint8))
    refused(call, "images are of type list", [[1, 2]])
    nowhere = torch.empty(2, 2, 9, 8, device="meta")
    refused(call, "an array of type torch.Tensor has no memory: .*meta", nowhere)
    shape = (2, 5)
    for out, words in (
        (np.empty(shape, np.float64), "out is float64, and outputs are float32"),
        (np.empty((3, 5), np.float32), "out is 3x5, and the outputs are 2x5"),
        (np.empty((5, 2), np.float32).T, "out is not contiguous"),
        (OnGpu(np.empty(shape, np.float32)), "out lies on a GPU"),
        (torch.empty(shape, requires_grad=True), "out of type Tensor: .*grad"),
        ([1.0], "out of type list"),
    ):
        refused(call, words, pixels(2), out=out)
    read_only = np.empty(shape, np.float32)
    read_only.flags.writeable = False
    refused(call, "must not be written to", pixels(2), out=read_only)
    memory = values(2)
    refused(call, "where the images do", memory, out=memory.reshape(-1)[:10].reshape(shape))


def check_threads(call: Callable[..., Any], threads: int = 8, rounds: int = 10) -> None:
    """Everybody gets the outputs of his own images, whatever the others ask for meanwhile."""
    images = [pixels(1 + index, index) for index in range(threads)]
    expected = [call(each) for each in images]
    wrong: list[object] = []
    ready = threading.Barrier(threads)

    def caller(index: int) -> None:
        ready.wait()
        for _ in range(rounds):
            try:
                got = call(images[index])
            except Exception as error:
                wrong.append(error)
                return
            if not np.allclose(got, expected[index], rtol=1e-4, atol=1e-6):
                wrong.append(index)

    callers = [threading.Thread(target=caller, args=(index,)) for index in range(threads)]
    for each in callers:
        each.start()
    for each in callers:
        each.join()
    assert wrong == []
