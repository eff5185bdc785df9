"""Arrays of libraries that are not here: how CuPy and PyTorch would be asked, by stand-ins."""

from __future__ import annotations

import gc
import sys
import threading
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_void_p, py_object, pythonapi
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.serving.called import BARE, OnGpu, pixels, refused
from tests.serving.fake_gpu import compiled
from tilewright.serving.of_torch import TorchKind


class Pointer:
    """Into memory of CuPy's, which lives as long as there are some."""

    def __init__(self, mem: np.ndarray, gpu: int = 0) -> None:
        self.mem, self.ptr, self.device_id = mem, mem.ctypes.data, gpu

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.mem[offset:] if offset else self.mem, self.device_id)


class Array:
    """CuPy's, as far as it is asked."""

    def __init__(self, array: np.ndarray, gpu: int = 0) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self._c_contiguous = array.flags.c_contiguous
        self.data, self.base = Pointer(array, gpu), None

    def view(self) -> Array:
        made = Array(self.array)
        made.data, made.base = self.data, self.base or self
        return made


Array.__module__ = "cupy._core.core"


class Cupy:
    """A module with a current GPU and a current stream."""

    float32, dtype = np.float32, np.dtype

    def __init__(self) -> None:
        self.gpu, self.stream, self.ended = 0, 0, 0
        self.taken: list[tuple[int, int]] = []  # GPUs and streams of new arrays
        self.pool: list[np.ndarray] = []  # never given back to the host
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
                made.handle = other.__cuda_stream__()[1]
                return made

            def __enter__(stream) -> None:
                stream.before, self.stream = self.stream, stream.handle

            def __exit__(stream, *how: Any) -> None:
                self.stream = stream.before

            def __del__(stream) -> None:
                self.ended += 1

        return Stream

    @contextmanager
    def _with(self, name: str, value: int) -> Any:
        before = getattr(self, name)
        setattr(self, name, value)
        yield
        setattr(self, name, before)

    def ndarray(self, shape: Any, dtype: Any) -> Array:
        self.taken.append((self.gpu, self.stream))
        self.pool.append(np.full(np.prod(shape) * dtype.itemsize, 99, np.uint8))
        made = Array(self.pool[-1].view(dtype).reshape(shape))
        made.data = Pointer(self.pool[-1])
        return made


class Interface:
    """An array that knows CUDA's array interface alone."""

    def __init__(self, array: np.ndarray, **more: Any) -> None:
        self.array, self.more = array, more

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = dict(self.array.__array_interface__)
        return found | {"version": 3, "stream": None} | self.more


class Lent(OnGpu):
    """Hands out the host's memory for a GPU's, by DLPack; notes for which streams."""

    streams: ClassVar[list[int]] = []

    def __dlpack__(self, *, stream: int, max_version: tuple[int, int]) -> Any:
        self.streams.append(stream)
        return as_if(self.array.__dlpack__(max_version=max_version), *self.__dlpack_device__())


class Older(Lent):
    def __dlpack__(self, *, stream: int) -> Any:
        self.streams.append(stream)
        return as_if(self.array.__dlpack__(), *self.__dlpack_device__())


def as_if(capsule: Any, memory: int, gpu: int) -> Any:
    """A capsule of DLPack whose array lies elsewhere."""
    name, pointer = pythonapi["PyCapsule_GetName"], pythonapi["PyCapsule_GetPointer"]
    name.restype, name.argtypes = c_char_p, (py_object,)
    pointer.restype, pointer.argtypes = c_void_p, (py_object, c_char_p)
    found = pointer(capsule, name(capsule))
    inside = 32 if name(capsule) == b"dltensor_versioned" else 0
    (c_int * 2).from_address(found + inside + 8)[:] = (memory, gpu)
    return capsule


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
    assert cupy.taken == [(0, 0)]
    refused(network, "images are int64", Array(images.astype(np.int64)))
    refused(network, "lie on GPU 1", Array(images, 1))


@pytest.mark.parametrize(
    "how",
    [lambda array: array.view(), lambda array: array.data, lambda array: array.data + 4],
    ids=["view", "pointer", "inside"],
)
def test_memory_of_cupy_s_that_nobody_holds_is_used_again(cupy, how):
    """Neither an array nor a view; on its stream alone, where it comes after the work before it."""
    network, card = compiled(BARE)
    streams = [0, card.new_stream()]
    for stream in streams:
        cupy.taken.clear()
        images = Array(pixels(2))
        network(images, stream=stream)  # anew
        one, two = (network(images, stream=stream) for _ in range(2))
        assert one.data.ptr != two.data.ptr and cupy.taken == [(0, stream)] * 3
        place, view = two.data.ptr, how(two)
        del one, two
        held = [network(images, stream=stream) for _ in range(2)]
        assert place not in {each.data.ptr for each in held}
        assert cupy.taken == [(0, stream)] * 4  # one of them is where the first was
        del view
        more = [network(images, stream=stream) for _ in range(6)]
        assert place in {each.data.ptr for each in more}
        card.driver.wait(stream)
        for each in (*held, *more):
            np.testing.assert_array_equal(each.array, card.expected(pixels(2)))
        assert len({each.data.ptr for each in (*held, *more)}) == 8


@pytest.mark.parametrize("own_stream", [True, False], ids=["streams", "one-stream"])
def test_answers_that_are_held_stay_as_they_are(cupy, own_stream):
    """Whatever other threads drop, and though nobody waits between calls."""
    network, card = compiled(BARE)
    streams = [card.new_stream() if own_stream else 0 for _ in range(4)]
    wrong: list[object] = []

    def call(index: int) -> None:
        try:
            held, batches = [], [pixels(1 + index % 2, 100 * index + turn) for turn in range(24)]
            for turn, images in enumerate(batches):
                given = (Array if turn % 8 < 4 else Lent)(images)
                got = network(given, stream=streams[index])
                if turn % 3 == 0:
                    held.append((images, got))
            card.driver.wait(streams[index])
            for images, got in held:
                np.testing.assert_array_equal(got.array, card.expected(images))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=call, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert wrong == []


def test_streams_that_share_lanes_share_no_memory_of_outputs(cupy, monkeypatch):
    network, card = compiled(BARE)
    monkeypatch.setattr("tilewright.serving.lanes.MOST_STREAMS", 1)
    streams = [card.new_stream() for _ in range(2)]
    for stream in streams * 3:
        network(Array(pixels(2)), stream=stream)
    assert cupy.taken == [(0, stream) for stream in streams * 3]
    card.driver.wait_for_all()


def test_cupy_s_streams(cupy):
    network, card = compiled(BARE)
    given, cupy.stream = card.new_stream(), card.new_stream()
    current = cupy.stream
    network(Array(pixels(1)))
    network(Array(pixels(1)), stream=SimpleNamespace(ptr=given))
    card.driver.wait_for_all()
    assert [each.stream for each in card.driver.launches] == [current, given]
    assert cupy.taken == [(0, current), (0, given)]
    gc.collect()
    assert cupy.ended == 0  # the caller's stream


@pytest.mark.parametrize("kind", [Lent, Older, Interface])
def test_arrays_of_others_are_used_where_they_lie(cupy, kind):
    """Outputs for them are CuPy's, for the stream that is worked on."""
    network, card = compiled(BARE)
    stream = card.new_stream()
    Lent.streams.clear()
    for turn in range(3):
        got = network(kind(pixels(2, turn)), stream=stream)
        card.driver.wait(stream)
        assert type(got) is Array
        np.testing.assert_array_equal(got.array, card.expected(pixels(2, turn)))
        out = np.empty((2, 5), np.float32)
        given = kind(out)
        for images in (Array(pixels(2)), kind(pixels(2))):
            out[:] = np.nan
            assert network(images, out=given) is given
            card.driver.wait(0)
            np.testing.assert_array_equal(out, card.expected(pixels(2)))
    assert cupy.taken == [(0, stream)] * 3
    if kind is not Interface:
        assert Lent.streams == [stream, 1, 1, 1] * 3  # DLPack's number of the default stream is 1


def test_arrays_of_others_are_refused_as_all_are(cupy):
    network, _ = compiled(BARE)
    good = pixels(2)
    turned = np.ascontiguousarray(good.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
    shape = (2, 5)
    for kind in (Lent, Interface):
        for dtype in ("int64", "float64", "bool", "complex64", "float16"):
            refused(network, f"images are {dtype}: ", kind(good.astype(dtype)))
        refused(network, "images are not contiguous", kind(turned))
        refused(network, "takes 2x9x8", kind(good[:, :1]))
        refused(network, "out is float64", Array(good), out=kind(np.empty(shape)))
        refused(network, "out is 3x5", kind(good), out=kind(np.empty((3, 5), np.float32)))
        refused(network, "not contiguous", kind(good), out=kind(np.empty((5, 2), np.float32).T))
        fixed = np.empty(shape, np.float32)
        fixed.flags.writeable = False
        refused(network, "out must not be written to", kind(good), out=kind(fixed))
        assert network(kind(good[:0])).shape == (0, 5)
    refused(network, "it has a mask", Interface(good, mask=object()))


def test_memory_that_dlpack_knows(cupy, monkeypatch):
    network, card = compiled(BARE)
    images = Lent(pixels(2))
    network(images)
    for memory, words in (
        ((2, 1), "images lie on GPU 1"), ((10, 0), "DLPack's kind 10, not CUDA's")
    ):  # fmt: skip
        monkeypatch.setattr(Lent, "__dlpack_device__", lambda self, memory=memory: memory)
        refused(network, words, images)
    monkeypatch.setattr(Lent, "__dlpack_device__", lambda self: (13, 7))  # all GPUs share it
    got = network(images)
    card.driver.wait(0)
    np.testing.assert_array_equal(got.array, card.expected(images.array))


def test_a_library_s_arrays_may_lie_on_the_host_too(cupy, monkeypatch):
    """Though one on a GPU came first; some libraries take no stream for them."""
    network, card = compiled(BARE)
    images = Lent(pixels(2))
    network(images)
    card.driver.wait(0)
    monkeypatch.setattr(Lent, "__dlpack_device__", lambda self: (1, 0))
    monkeypatch.setattr(Lent, "__dlpack__", lambda self, **how: as_if(_unless(how, self), 1, 0))
    got = network(images)
    assert type(got) is np.ndarray
    np.testing.assert_array_equal(got, card.expected(images.array))
    out = Lent(np.empty((2, 5), np.float32))
    refused(network, "out lies in the host's memory", Array(pixels(2)), out=out)


def _unless(how: dict[str, Any], lent: Lent) -> Any:
    if how.pop("stream", None) is not None:
        raise BufferError("no streams here")
    return lent.array.__dlpack__(**how)


def test_an_error_of_another_kind_is_no_older_version(cupy, monkeypatch):
    """What must not be written to would not say so any more."""
    network, card = compiled(BARE)
    network(Lent(pixels(1)))
    with monkeypatch.context() as patched:
        patched.setattr(Lent, "__dlpack__", lambda self, **how: pixels(1) + "not now")
        refused(network, "Lent cannot be read", Lent(pixels(1)))
    fixed = np.empty((1, 5), np.float32)
    fixed.flags.writeable = False
    refused(network, "out must not be written to", Lent(pixels(1)), out=Lent(fixed))
    card.driver.wait_for_all()


def test_an_interface_tells_what_to_wait_for(cupy, monkeypatch):
    network, card = compiled(BARE)
    waited: list[int] = []
    monkeypatch.setattr(card.driver, "wait", waited.append)
    other = card.new_stream()
    for made_on, stream in ((other, None), (1, None), (None, None), (other, other), (1, other)):
        network(Interface(pixels(1), stream=made_on), stream=stream)
    assert waited == [other, 1]
    card.driver.wait_for_all()


def test_what_is_handed_out_is_held_until_it_is_launched(cupy):
    """A library may have made it for this call alone."""
    network, card = compiled(BARE)
    network(Lent(pixels(1)))
    card.driver.wait(0)
    (lane,) = network.lanes.free[0]
    (launches,) = (each for key, each in lane.ready.items() if key == 3)
    memory, alive = pixels(1), []
    launches.launch = lambda *given: alive.append(sys.getrefcount(memory)) or 0
    before = sys.getrefcount(memory)
    network(Lent(memory))
    lane.last = None  # the next is not known again
    network(Lent(memory))
    # One more of the array, one of the capsule, and one of the function that counts.
    assert alive == [before + 2] * 2 and sys.getrefcount(memory) == before


def test_on_another_gpu_than_cupy_s_current_one(cupy):
    network, card = compiled(BARE)
    cupy.gpu = 1
    network(Array(pixels(1)))
    card.driver.wait(0)
    assert cupy.taken == [(0, 0)] and cupy.gpu == 1


def test_what_another_library_does_not_hand_out(cupy, monkeypatch):
    network, _ = compiled(BARE)

    def no(self: Any, **how: Any) -> None:
        raise BufferError("it is on the moon\nand stays there")

    monkeypatch.setattr(Lent, "__dlpack__", no)
    refused(network, "Lent cannot be read: it is on the moon$", Lent(pixels(1)))
    monkeypatch.setattr(Lent, "__dlpack__", lambda self, **how: "no capsule")
    refused(network, "Lent cannot be read: .*PyCapsule", Lent(pixels(1)))


def test_tensors_are_asked_for_what_there_is_to_know():
    torch = pytest.importorskip("torch")
    kind = TorchKind(0)
    tensor = torch.zeros((4, 2, 9, 8), dtype=torch.uint8)[1:]
    address, facts = kind.look(tensor)
    assert address == tensor.data_ptr() and kind.read(facts)[:4] == (
        (3, 2, 9, 8),
        "uint8",
        True,
        -1,
    )

    def read(other: Any) -> Any:
        return kind.read(kind.look(other)[1])

    assert read(tensor.float()).dtype == "float32"
    assert read(tensor.long()).dtype == "int64"
    assert not read(tensor.to(memory_format=torch.channels_last)).contiguous
    refused(read, r"give x\.detach\(\)", tensor.float().requires_grad_())


class Compiler:
    """The part of PyTorch that its own compiler uses: a current GPU, and a stream of each."""

    def __init__(self) -> None:
        self.gpu, self.now, self.made = 0, (5, 0, 1), []
        self._cuda_getDevice = lambda: self.gpu
        self._cuda_getCurrentStream = lambda gpu: self.now

    def _cuda_setStream(self, *stream: int) -> None:
        self.now = stream

    def new(self, shape: Any, strides: Any, dtype: Any) -> Any:
        self.made.append((shape, strides, self.gpu, self.now[0]))
        return torch_of_host().empty_strided(shape, strides, dtype=dtype)


def torch_of_host() -> Any:
    return pytest.importorskip("torch")


def test_new_tensors_are_for_the_stream():
    torch = torch_of_host()
    own = Compiler()
    kind = TorchKind(0)
    kind.new = own.new
    kind.device, kind.now = own._cuda_getDevice, own._cuda_getCurrentStream
    kind.work_on = own._cuda_setStream
    kind.torch = SimpleNamespace(_C=own, cuda=SimpleNamespace(device=lambda gpu: _on(own, gpu)))
    for given, found in ((None, 5), (5, 5), (8, 8), (1, 0)):
        made, address = kind.empty((3, 2, 4), given)
        assert address == made.data_ptr() and made.dtype == torch.float32
        assert own.made[-1] == ((3, 2, 4), (8, 4, 1), 0, found) and own.now == (5, 0, 1)
    own.gpu = 1
    kind.empty((3,), None)
    assert own.made[-1] == ((3,), (1,), 0, 5) and own.gpu == 1


def test_another_pytorch_has_its_usual_way_alone(monkeypatch):
    """Its compiler's is nobody's to rely on."""
    torch = torch_of_host()
    monkeypatch.delattr(torch._C._dynamo.guards, "_empty_strided_cuda")
    made, given = torch.empty((3, 2)), []
    monkeypatch.setattr(torch, "empty_strided", lambda *sizes, **how: given.append(how) or made)
    assert TorchKind(0).maker((3, 2))() is made
    assert given == [{"dtype": torch.float32, "device": "cuda"}]


@contextmanager
def _on(own: Compiler, gpu: int) -> Any:
    before, own.gpu = own.gpu, gpu
    yield
    own.gpu = before
