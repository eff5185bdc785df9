"""Arrays of libraries that are not here: how CuPy and PyTorch would be asked, by stand-ins."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.serving.called import BARE, OnGpu, pixels, refused
from tests.serving.fake_gpu import compiled
from tilewright.serving.gpu_arrays import TorchKind


class Array:
    """CuPy's, as far as it is asked."""

    def __init__(self, array: np.ndarray, gpu: int = 0) -> None:
        self.array, self.shape, self.dtype, self.flags = (
            array,
            array.shape,
            array.dtype,
            array.flags,
        )
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=gpu)


Array.__module__ = "cupy._core.core"


class Cupy:
    """A module with a current GPU and a current stream."""

    float32, ndarray, dtype = np.float32, Array, np.dtype

    def __init__(self) -> None:
        self.gpu, self.stream, self.ended = 0, 0, 0
        self.taken: list[tuple[str, int, int]] = []
        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(getDevice=lambda: self.gpu),
            Device=lambda gpu: self._with("gpu", gpu),
            Stream=self._streams(),
            get_current_stream=lambda gpu: SimpleNamespace(ptr=self.stream),
        )

    def _streams(self) -> type:
        class Stream:
            """Ends when it is not used any more, whoever made it."""

            @classmethod
            def from_external(cls, other: Any) -> Any:
                made = cls()
                made.during = self._with("stream", other.__cuda_stream__()[1])
                return made

            def __enter__(self) -> None:
                self.during.__enter__()

            def __exit__(self, *how: Any) -> None:
                self.during.__exit__(*how)

            def __del__(stream) -> None:
                self.ended += 1

        return Stream

    @contextmanager
    def _with(self, name: str, value: int) -> Any:
        before = getattr(self, name)
        setattr(self, name, value)
        yield
        setattr(self, name, before)

    def empty(self, shape: Any, dtype: Any) -> Array:
        self.taken.append(("empty", self.gpu, self.stream))
        return Array(np.full(shape, np.nan, dtype))

    def from_dlpack(self, other: Any) -> Array:
        self.taken.append(("from_dlpack", self.gpu, self.stream))
        return Array(other.array)

    def asarray(self, other: Any) -> Array:
        self.taken.append(("asarray", self.gpu, self.stream))
        return Array(other.array)


class Interface:
    __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Cupy:
    made = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def test_cupy_s_arrays(cupy):
    network, card = compiled(BARE)
    images = pixels(3)
    got = network(Array(images))
    out = Array(np.empty((3, 5), np.float32))
    assert network(Array(images), out=out) is out
    card.driver.wait(0)
    for each in (got, out):
        np.testing.assert_array_equal(each.array, card.expected(images))
    assert cupy.taken == [("empty", 0, 0)]
    refused(network, "images are int64", Array(images.astype(np.int64)))
    refused(network, "lie on GPU 1", Array(images, 1))


def test_cupy_s_streams(cupy):
    network, card = compiled(BARE)
    given, cupy.stream = card.new_stream(), card.new_stream()
    current = cupy.stream
    network(Array(pixels(1)))
    network(Array(pixels(1)), stream=SimpleNamespace(ptr=given))
    card.driver.wait_for_all()
    assert [each.stream for each in card.driver.launches] == [current, given]
    assert cupy.taken == [("empty", 0, current), ("empty", 0, given)]
    gc.collect()
    assert cupy.ended == 0  # the caller's stream


def test_arrays_of_others_become_cupy_s_on_the_stream(cupy):
    network, card = compiled(BARE)
    stream = card.new_stream()
    for kind, how in ((OnGpu, "from_dlpack"), (Interface, "asarray")):
        cupy.taken.clear()
        got = network(kind(pixels(2)), stream=stream)
        card.driver.wait(stream)
        assert type(got) is Array
        np.testing.assert_array_equal(got.array, card.expected(pixels(2)))
        assert cupy.taken == [(how, 0, stream), ("empty", 0, stream)]
        out = np.empty((2, 5), np.float32)
        given = kind(out)
        assert network(Array(pixels(2)), out=given) is given
        card.driver.wait(0)
        np.testing.assert_array_equal(out, card.expected(pixels(2)))


def test_on_another_gpu_than_cupy_s_current_one(cupy):
    network, card = compiled(BARE)
    cupy.gpu = 1
    network(Array(pixels(1)))
    card.driver.wait(0)
    assert cupy.taken == [("empty", 0, 0)] and cupy.gpu == 1


def test_what_another_library_does_not_hand_out(cupy, monkeypatch):
    network, _ = compiled(BARE)

    def no(other: Any) -> Array:
        raise BufferError("it is on the moon\nand stays there")

    monkeypatch.setattr(cupy, "from_dlpack", no, raising=False)
    refused(network, "OnGpu cannot be read: it is on the moon$", OnGpu(pixels(1)))


def test_tensors_are_asked_for_what_there_is_to_know():
    torch = pytest.importorskip("torch")
    kind = TorchKind(0)
    tensor = torch.zeros((4, 2, 9, 8), dtype=torch.uint8)[1:]
    address, facts = kind.look(tensor)
    assert address == tensor.data_ptr() and kind.read(facts) == ((3, 2, 9, 8), "uint8", True, -1)

    def read(other: Any) -> Any:
        return kind.read(kind.look(other)[1])

    assert read(tensor.float()).dtype == "float32"
    assert read(tensor.long()).dtype == "int64"
    assert not read(tensor.to(memory_format=torch.channels_last)).contiguous
    refused(read, r"give x\.detach\(\)", tensor.float().requires_grad_())
    assert TorchKind(-1).outputs((2, 5)) == kind.look(torch.zeros(2, 5))[1]
