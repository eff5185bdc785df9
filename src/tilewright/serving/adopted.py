"""Arrays of a library that shares them by a protocol alone: DLPack, or CUDA's array interface."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.serving import exchanged
from tilewright.serving.card import Launching
from tilewright.serving.gpu_arrays import LEGACY, Facts, Looked
from tilewright.serving.of_cupy import CupyKind


class AdoptedKind:
    """Arrays of a library that shares them by a protocol alone; outputs for them are CuPy's."""

    tell, gradients, adopts = 0, False, True

    def __init__(self, own: CupyKind) -> None:
        self.index, self.current_stream = own.index, own.current_stream
        self.empty, self.maker, self.again, self.on = own.empty, own.maker, own.again, own.on


class DlpackKind(AdoptedKind):
    def __init__(self, own: CupyKind) -> None:
        super().__init__(own)
        self.told = exchanged.told()
        self.how = {"max_version": exchanged.VERSION}
        self.look: Callable[[Any], tuple[int, Facts]] = itemgetter(1)

    def adopt(self, array: Any, stream: int) -> Any:
        try:
            capsule = array.__dlpack__(stream=stream or LEGACY, **self.how)
        except TypeError:
            if not self.how:
                raise
            capsule = array.__dlpack__(stream=stream or LEGACY)
            self.how = {}  # which older ones do not take
        return capsule, self.told(capsule)

    def read(self, facts: Facts) -> Looked:
        return Looked(*exchanged.of_dlpack(facts, self.index))


class InterfaceKind(AdoptedKind):
    """CUDA's array interface, which leaves to whoever reads it to find the GPU, and to wait."""

    def __init__(self, own: CupyKind, driver: Launching) -> None:
        super().__init__(own)
        self.driver = driver

    def adopt(self, array: Any, stream: int) -> Any:
        interface = array.__cuda_array_interface__
        made_on = interface.get("stream")
        if made_on is not None and made_on != (stream or LEGACY):
            with self.driver.inside():
                self.driver.wait(made_on)
        if interface.get("mask") is not None:
            raise TilewrightError("it has a mask, and all values are read")
        return interface

    def look(self, array: Any) -> tuple[int, Facts]:
        address, fixed = array["data"]
        facts = array["shape"], array["typestr"], array.get("strides")
        return address, (facts, self.driver.gpu_of(address) if address else self.index, fixed)

    def read(self, facts: Facts) -> Looked:
        known, gpu, fixed = facts
        return Looked(*exchanged.of_interface(known), gpu, not fixed)
