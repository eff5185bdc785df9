"""What is asked of CUDA's driver, by a library whose functions note what they are given."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from tests.serving.fake_gpu import ASK, COPY, CURRENT, LAUNCH, MOVE, REPLAY, WAIT
from tilewright.runtime import DeviceFault
from tilewright.serving.driver import ORDINAL, RELAXED, Driver

ATTRIBUTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
OURS = (1 << 46) + 0x1234


class Library:
    """Functions by name; a context and a capture mode, as a thread has them."""

    def __init__(self) -> None:
        self.contexts: list[int | None] = [OURS]
        self.mode, self.modes = 0, []  # type: int, list[int]
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.error = 0
        self.cuCtxGetCurrent = CURRENT(self._current)
        self.cuStreamIsCapturing = ASK(lambda *given: 3)
        self.cuLaunchKernel = LAUNCH(lambda *given: 4)
        self.cuGraphLaunch = REPLAY(lambda *given: 5)
        self.cuGraphExecKernelNodeSetParams_v2 = MOVE(lambda *given: 8)
        self.cuMemcpyHtoDAsync_v2 = COPY(lambda *given: 6)
        self.cuMemcpyDtoHAsync_v2 = COPY(lambda *given: 7)
        self.cuStreamSynchronize = WAIT(self._wait)
        self.cuPointerGetAttribute = ATTRIBUTE(self._attribute)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name, None) or (lambda *given: self._noted(name, given))

    def _noted(self, name: str, given: tuple[Any, ...]) -> int:
        self.calls.append((name, tuple(each.value for each in given)))
        return self.error

    def _wait(self, stream: int | None) -> int:
        self.calls.append(("cuStreamSynchronize", (stream,)))
        return self.error

    def _attribute(self, found: int, what: int, address: int) -> int:
        if what != ORDINAL or address < 1 << 40 or self.contexts[-1] != OURS:
            return 1
        ctypes.c_int.from_address(found).value = 3
        return 0

    def _current(self, found: int) -> int:
        ctypes.c_void_p.from_address(found).value = self.contexts[-1]
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        self.contexts[-1] = context.value
        return 0

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:
        self.contexts.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, found: Any) -> int:
        self.contexts.pop()
        return 0

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> int:
        self.mode, mode._obj.value = mode._obj.value, self.mode
        self.modes.append(self.mode)
        return 0

    def cuGetErrorString(self, error: ctypes.c_int, said: Any) -> int:
        said._obj.value = b"an illegal address" if error.value == 700 else None
        return 0 if error.value == 700 else 1


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture
def driver(library: Library) -> Driver:
    return Driver(library)


def test_a_thread_without_a_context_keeps_ours(library, driver):
    library.contexts = [None]
    with driver.inside():
        assert library.contexts == [OURS]
    assert library.contexts == [OURS]


def test_a_thread_of_ours_is_left_as_it_is(library, driver):
    with driver.inside():
        assert library.contexts == [OURS]
    assert library.contexts == [OURS]


def test_a_thread_of_another_gpu_gets_its_own_back(library, driver):
    library.contexts = [5]
    with pytest.raises(ZeroDivisionError), driver.inside():
        assert library.contexts == [5, OURS]
        _ = 1 / 0
    assert library.contexts == [5]


def test_the_capture_mode_is_put_back(library, driver):
    with pytest.raises(ZeroDivisionError), driver.while_capturing():
        assert library.mode == RELAXED
        _ = 1 / 0
    assert library.mode == 0 and library.modes == [RELAXED, 0]


def test_where_functions_lie_that_machine_code_calls(driver):
    found = ctypes.c_void_p()
    assert CURRENT(driver.current)(ctypes.addressof(found)) == 0 and found.value == OURS
    assert ASK(driver.ask)(None, None) == 3
    assert LAUNCH(driver.launch)(None, *[0] * 7, None, None, None) == 4
    assert REPLAY(driver.replay)(None, None) == 5
    assert MOVE(driver.move)(None, None, None) == 8
    assert COPY(driver.send)(None, None, 0, None) == 6
    assert COPY(driver.fetch)(None, None, 0, None) == 7
    assert WAIT(driver.waiting)(None) == 0


def test_a_graph_of_launches_one_after_the_other(library, driver):
    added: list[tuple[int, list[int], int]] = []

    def create(graph: Any, flags: ctypes.c_uint) -> int:
        graph._obj.value = 11
        return flags.value

    def add(
        node: Any, graph: ctypes.c_void_p, before: Any, count: ctypes.c_uint64, place: Any
    ) -> int:
        added.append((graph.value, [before._obj.value][: count.value], place.value))
        node._obj.value = 20 + len(added)
        return library.error

    def instantiate(made: Any, graph: ctypes.c_void_p, flags: ctypes.c_uint64) -> int:
        made._obj.value = 1000 + graph.value
        return library.error

    driver.functions |= {
        "cuGraphCreate": create,
        "cuGraphAddKernelNode_v2": add,
        "cuGraphInstantiateWithFlags": instantiate,
    }
    high = 1 << 45
    assert driver.series([high, high + 8, high + 16]) == (11, [21, 22, 23])
    assert added == [(11, [], high), (11, [21], high + 8), (11, [22], high + 16)]
    assert driver.graph(11) == 1011
    driver.forget(11, [1011, 1012])
    assert library.calls == [
        ("cuGraphExecDestroy", (1011,)), ("cuGraphExecDestroy", (1012,)), ("cuGraphDestroy", (11,))
    ]  # fmt: skip
    library.calls.clear()
    library.error = 700
    with pytest.raises(DeviceFault, match="error 700"):
        driver.graph(11)
    with pytest.raises(DeviceFault, match="error 700"):
        driver.series([high])
    assert library.calls == [("cuGraphDestroy", (11,))]  # nothing is left of it


def test_the_gpu_of_an_address(library, driver):
    """A thread that the driver does not know is told of the GPU first."""
    assert driver.gpu_of((1 << 40) + 7) == 3 and driver.gpu_of(7) == -1
    library.contexts = [None]
    assert driver.gpu_of((1 << 40) + 7) == 3 and library.contexts == [OURS]


def test_addresses_are_passed_whole(library, driver):
    high = 1 << 45
    driver.wait(high + 3)
    driver.wait_for_all()
    assert library.calls == [
        ("cuStreamSynchronize", (high + 3,)),
        ("cuCtxSynchronize", ()),
    ]


def test_errors_in_words(library, driver):
    library.error = 700
    with pytest.raises(DeviceFault, match=r"an illegal address \(error 700\)"):
        driver.wait(0)
    assert str(driver.fault(3)) == "CUDA's driver: unknown (error 3)"
