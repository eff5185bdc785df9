"""On an NVIDIA GPU: the rung `network`, launched where images lie, on the caller's stream.

A call on the GPU's memory launches and returns; the outputs are there for whatever comes next on
that stream. A call on the host's memory returns when the outputs are there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import finalize

from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.model.batches import wrong_shape, wrong_type
from tilewright.model.layers import Shape
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import DEFAULT_BATCH
from tilewright.rungs.rung import Rung
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import Device
from tilewright.serving import host
from tilewright.serving.adopted import DlpackKind, InterfaceKind
from tilewright.serving.card import Card, CudaCard
from tilewright.serving.compiled import Compiled
from tilewright.serving.driver import library
from tilewright.serving.gpu_arrays import (
    FLOAT32,
    UINT8,
    Facts,
    Kind,
    Looked,
    handle_of,
    held_of,
)
from tilewright.serving.lanes import MOST_READY, Lanes, Like
from tilewright.serving.of_cupy import CupyKind
from tilewright.serving.of_torch import TorchKind
from tilewright.serving.through import Through
from tilewright.tune.short import by_trial

# Bytes that kernels read or write at once, where images or outputs begin on such a boundary.
WIDEST = 16


@dataclass(frozen=True, slots=True)
class Batch:
    """What there is to know of batches of some shape and type, of one library's arrays."""

    count: int
    pixels: bool
    boundary: int  # what an address must be a multiple of
    size: int
    results: Shape
    output_size: int


def compiled_for_cuda(
    network: Network, device: Device, rung: Rung, batch: int | None, trial: bool = False
) -> CudaCompiled:
    images = batch or DEFAULT_BATCH
    options = by_trial(network, rung, device, images) if trial else None
    plan = uniform(network, rung, device, images, "resident", options)
    program = Program(network, plan, {rung.name: rung})
    fused, runtime = program.steps[0].launch, program.runtime
    if fused is None:
        raise TilewrightError("no layer of the network computes anything: there is nothing to fuse")
    assert isinstance(fused, FusedNetwork) and isinstance(runtime, CudaRuntime)
    return CudaCompiled(network, device, rung, batch, CudaCard(runtime, library()), fused)


class CudaCompiled(Compiled):
    """Images and outputs of PyTorch, CuPy and whoever knows DLPack or CUDA's array interface.

    Arrays on the GPU are used where they are: nothing is copied, and what is not contiguous is
    refused. Keep it as long as a graph that you captured a call into.
    """

    def __init__(
        self,
        network: Network,
        device: Device,
        rung: Rung,
        batch: int | None,
        card: Card,
        fused: FusedNetwork,
    ) -> None:
        super().__init__(network, device, rung, batch)
        self.card = card
        self.lanes = Lanes(card, network, fused, batch)
        self.through = Through(card, network, self.lanes)
        self.kinds: dict[type, Kind] = {}
        self.known: dict[type, Kind] = {}  # of them, those of images that lay on the GPU
        self.batches: dict[Facts, Batch] = {}  # that came
        self.targets: dict[Facts, Shape] = {}  # the same of `out`, with what they are for
        self.shape, self.output_shape = network.input.shape, network.output_shape
        values = math.prod(self.shape)
        self.sizes = {UINT8: values, FLOAT32: 4 * values}
        self.output_size = 4 * math.prod(self.output_shape)
        self.output_boundary = _boundary(self.output_size)
        # Memory must not be given back while a kernel works in it.
        finalize(self, card.driver.wait_for_all).atexit = False

    def __call__(self, images: Any, out: Any = None, stream: Any = None) -> Any:
        handle = None if stream is None else handle_of(stream)
        kind, held = self.known.get(type(images)), None
        if kind is not None:
            on = kind.current_stream() if handle is None else handle
            held = held_of(kind, images, on) if kind.adopts else images
            if held is not None:
                done = self.lanes.again(kind, held, out, on, handle)
                if done is not None:
                    return done
        return self._anew(images, held, out, handle)

    def _anew(self, images: Any, held: Any, out: Any, handle: int | None) -> Any:
        """A call that is not like the last one on its stream; `held` is what is looked at, if that
        is known yet."""
        kind = self.kinds.get(type(images)) or self._kind(images)
        if kind is not None and held is None:
            held = held_of(kind, images, _stream(kind, handle)) if kind.adopts else images
        if kind is None or held is None:
            return self._from_host(images, out, handle)
        address, facts = kind.look(held)
        batch = self.batches.get(facts)
        if batch is None or address % batch.boundary:
            looked = kind.read(facts)
            if looked.gpu < 0:
                return self._from_host(images, out, handle)
            batch = self.batches[facts] = self._batch(address, looked)
        on = _stream(kind, handle)
        if out is None:
            out, _ = kind.empty(batch.results, handle)
        out_kind, target, out_facts = self._target(out, batch, address, on)
        if batch.count:
            memory = (batch.size, batch.boundary), (batch.output_size, self.output_boundary)
            like = Like(
                kind, held, facts, memory[0], out_kind, out, out_facts, memory[1], batch.results
            )
            self.lanes.launch(batch.count, batch.pixels, address, target, on, like)
            self.known[type(images)] = kind
        return out

    def _from_host(self, images: Any, out: Any, stream: int | None) -> Any:
        batch, outputs, given = self.of_host(images, out)
        self.through(batch, outputs, stream)
        return given

    def _kind(self, array: Any) -> Kind | None:
        """Whose array it is, found once for each type; None: of the host, or of nobody known."""
        kind: Kind
        if host.is_tensor(array):
            kind = TorchKind(self.card.index)
        elif type(array).__module__.partition(".")[0] == "cupy":
            kind = self.own
        elif host.on_host(array):
            return None
        elif hasattr(array, "__dlpack__"):
            kind = DlpackKind(self.own)
        else:
            kind = InterfaceKind(self.own, self.card.driver)
        self.kinds[type(array)] = kind
        return kind

    @cached_property
    def own(self) -> CupyKind:
        return CupyKind(self.card.index)

    def _target(self, out: Any, batch: Batch, images: int, stream: int) -> tuple[Kind, int, Facts]:
        """Whose `out` it is, where it lies and what it says, if outputs can be written there."""
        kind = self.kinds.get(type(out)) or self._kind(out)
        held = None if kind is None else held_of(kind, out, stream)
        if kind is None or held is None:
            raise TilewrightError("out lies in the host's memory, and the images on a GPU")
        address, facts = kind.look(held)
        if self.targets.get(facts) != batch.results:
            self._check_target(kind.read(facts), batch)
            if len(self.targets) >= MOST_READY:
                self.targets.clear()
            self.targets[facts] = batch.results
        if address % self.output_boundary:
            raise _out_of_line()
        if address < images + batch.size and images < address + batch.output_size:
            raise TilewrightError("out lies where the images do: they are read while it is written")
        return kind, address, facts

    def _check_target(self, looked: Looked, batch: Batch) -> None:
        if looked.gpu != self.card.index:
            raise TilewrightError(
                f"out lies {_where(looked.gpu)}, and the images on GPU {self.card.index}"
            )
        if looked.dtype != FLOAT32:
            raise TilewrightError(f"out is {looked.dtype}, and outputs are float32")
        if looked.shape != batch.results:
            raise host.wrong_out(looked.shape, batch.results)
        if not looked.contiguous:
            raise _out_of_line()
        if not looked.writable:
            raise TilewrightError("out must not be written to, as its library says")

    def _batch(self, address: int, looked: Looked) -> Batch:
        """A batch whose like comes for the first time; or why it is refused."""
        shape, dtype, contiguous, gpu, _ = looked
        if dtype not in self.sizes:
            raise wrong_type(dtype)
        if shape[1:] != self.shape:
            raise wrong_shape(shape, self.shape, self.network.name)
        if gpu != self.card.index:
            raise TilewrightError(
                f"images lie on GPU {gpu}, and the network was compiled for GPU "
                f"{self.card.index}: compile it with device='cuda:{gpu}', too"
            )
        if not contiguous:
            raise TilewrightError(
                "images are not contiguous, and on a GPU nothing is copied unasked: give "
                "x.contiguous(), or cupy.ascontiguousarray(x)"
            )
        boundary = _boundary(self.sizes[dtype])
        if address % boundary:
            raise TilewrightError(
                f"images begin at an address that is no multiple of {boundary} "
                "bytes: give a copy, as x.clone() or x.copy() does"
            )
        count = shape[0]
        self.check_count(count)
        if len(self.batches) >= MOST_READY:
            self.batches.clear()
        results = (count, *self.output_shape)
        return Batch(
            count, dtype == UINT8, boundary, count * self.sizes[dtype], results,
            count * self.output_size,
        )  # fmt: skip


def _stream(kind: Kind, handle: int | None) -> int:
    return kind.current_stream() if handle is None else handle


def _boundary(size: int) -> int:
    """What the addresses of things of such a size are all a multiple of, if the first is."""
    return min(WIDEST, size & -size)


def _out_of_line() -> TilewrightError:
    return TilewrightError("out is not contiguous, or begins inside a word of memory")


def _where(gpu: int) -> str:
    return "in the host's memory" if gpu < 0 else f"on GPU {gpu}"
