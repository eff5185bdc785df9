"""On an NVIDIA GPU: the rung `network`, launched where images lie, on the caller's stream.

A call on the GPU's memory launches and returns; the outputs are there for whatever comes next on
that stream. A call on the host's memory returns when the outputs are there.
"""

from __future__ import annotations

import math
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
from tilewright.serving.card import Card, CudaCard
from tilewright.serving.compiled import Compiled
from tilewright.serving.driver import library
from tilewright.serving.gpu_arrays import (
    FLOAT32,
    UINT8,
    CupyKind,
    Kind,
    Looked,
    TorchKind,
    handle_of,
)
from tilewright.serving.lanes import MOST_READY, Lanes
from tilewright.serving.through import Through
from tilewright.tune.short import by_trial

# Bytes that kernels read or write at once, where images or outputs begin on such a boundary.
WIDEST = 16


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
        self.kinds: dict[type, Kind | None] = {}  # None: arrays of the host, or of nobody known
        self.shape, self.output_shape = network.input.shape, network.output_shape
        values = math.prod(self.shape)
        # By type, what an address must be a multiple of: so is that of every image of a batch.
        self.boundaries = {UINT8: _boundary(values), FLOAT32: _boundary(4 * values)}
        self.sizes = {UINT8: values, FLOAT32: 4 * values}
        self.output_size = 4 * math.prod(self.output_shape)
        self.output_boundary = _boundary(self.output_size)
        self.shapes: dict[Shape, Shape] = {}  # of batches that came, and of their outputs
        # Memory must not be given back while a kernel works in it.
        finalize(self, card.driver.wait_for_all).atexit = False

    def __call__(self, images: Any, out: Any = None, stream: Any = None) -> Any:
        handle = None if stream is None else handle_of(stream)
        kinds = self.kinds
        kind = kinds[type(images)] if type(images) in kinds else self._kind(images)
        if kind is None:
            if host.on_host(images):
                return self._from_host(images, out, handle)
            kind, images = self._adopt(images, handle)
        looked = kind.look(images)
        address, shape, dtype, contiguous, gpu = looked
        results, boundary = self.shapes.get(shape), self.boundaries.get(dtype)
        if (
            results is None
            or boundary is None
            or not contiguous
            or gpu != self.card.index
            or address % boundary
        ):
            if gpu < 0:
                return self._from_host(images, out, handle)
            results = self._results(looked)
        count = results[0]
        if out is None:
            out, target = kind.empty(images, results, handle)
        else:
            target = self._target(out, results, address, count * self.sizes[dtype])
        if count:
            on = kind.current_stream() if handle is None else handle
            self.lanes.launch(count, dtype == UINT8, address, target, on)
        return out

    def _from_host(self, images: Any, out: Any, stream: int | None) -> Any:
        batch, outputs, given = self.of_host(images, out)
        self.through(batch, outputs, stream)
        return given

    def _kind(self, array: Any) -> Kind | None:
        """Whose array it is, found once for each type."""
        found: Kind | None = None
        if host.is_tensor(array):
            found = TorchKind(self.card.index)
        elif type(array).__module__.partition(".")[0] == "cupy":
            found = CupyKind(self.card.index)
        self.kinds[type(array)] = found
        return found

    def _adopt(self, array: Any, stream: int | None) -> tuple[Kind, Any]:
        """An array of somebody else on a GPU, as CuPy's."""
        kind = CupyKind(self.card.index)
        try:
            return kind, kind.adopt(array, stream)
        except Exception as error:  # whatever that library raises
            said = str(error).partition("\n")[0]
            name = f"{type(array).__module__}.{type(array).__qualname__}"
            raise TilewrightError(f"an array of type {name} cannot be read: {said}") from error

    def _target(self, out: Any, results: Shape, images: int, size: int) -> int:
        """The address of `out`, if outputs can be written there."""
        kind = self.kinds[type(out)] if type(out) in self.kinds else self._kind(out)
        if kind is None:
            if host.on_host(out):
                raise TilewrightError("out lies in the host's memory, and the images on a GPU")
            kind, out = self._adopt(out, None)
        address, shape, dtype, contiguous, gpu = kind.look(out)
        if gpu != self.card.index:
            raise TilewrightError(
                f"out lies {_where(gpu)}, and the images on GPU {self.card.index}"
            )
        if dtype != FLOAT32:
            raise TilewrightError(f"out is {dtype}, and outputs are float32")
        if shape != results:
            raise host.wrong_out(tuple(shape), results)
        if not contiguous or address % self.output_boundary:
            raise TilewrightError("out is not contiguous, or begins inside a word of memory")
        if address < images + size and images < address + results[0] * self.output_size:
            raise TilewrightError("out lies where the images do: they are read while it is written")
        return address

    def _results(self, looked: Looked) -> Shape:
        """The outputs' shape of a batch that comes for the first time; or why it is refused."""
        address, shape, dtype, contiguous, gpu = looked
        if dtype not in self.boundaries:
            raise wrong_type(dtype)
        if shape[1:] != self.shape:
            raise wrong_shape(tuple(shape), self.shape, self.network.name)
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
        if address % self.boundaries[dtype]:
            raise TilewrightError(
                f"images begin at an address that is no multiple of {self.boundaries[dtype]} "
                "bytes: give a copy, as x.clone() or x.copy() does"
            )
        self.check_count(shape[0])
        if len(self.shapes) >= MOST_READY:
            self.shapes.clear()
        results = self.shapes[tuple(shape)] = (shape[0], *self.output_shape)
        return results


def _boundary(size: int) -> int:
    """What the addresses of things of such a size are all a multiple of, if the first is."""
    return min(WIDEST, size & -size)


def _where(gpu: int) -> str:
    return "in the host's memory" if gpu < 0 else f"on GPU {gpu}"
