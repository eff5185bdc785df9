"""A compiled network as a callable on NumPy arrays."""

from __future__ import annotations

import math
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.arrays import address
from tilewright.fuse.cpu.build import Machine, compile_network, compiled_folder, host
from tilewright.fuse.cpu.cost import single_cost
from tilewright.fuse.cpu.few import Phase, phases, read_in_place
from tilewright.fuse.cpu.parameters import layout, pack
from tilewright.fuse.cpu.schedule import DEFAULT, Rules, Schedule, by_channels, by_images
from tilewright.fuse.cpu.shares import Job, Kernel, Shares, job, piece_of, shares
from tilewright.fuse.cpu.team import Memory, team
from tilewright.model.layers import dimensions
from tilewright.model.network import Network

UINT8 = np.dtype(np.uint8)
PIXELS = (np.dtype(np.float32), UINT8)


class Variant:
    """A network by one of the schedules: compiled, and its weights packed."""

    def __init__(
        self, network: Network, on: Machine, plan: Schedule, weights: Future[NDArray[np.float32]]
    ) -> None:
        self.schedule = plan
        self.compiled = compile_network(network, on, compiled_folder(), plan)
        self.weights = weights.result()
        self.scratch = layout(plan).size

    def kernel(self, suffix: str) -> Kernel:
        """Addresses of the code for one type of pixels."""
        find = self.compiled.address
        together: tuple[tuple[Phase, int], ...] = ()
        if self.schedule.lanes_are == "channels":
            idle = read_in_place(self.schedule, suffix)
            together = tuple(
                (phase, find(f"phase{index}_{suffix}"))
                for index, phase in enumerate(phases(self.schedule))
                if index > 0 or phase.last > phase.first or not idle
            )
        return Kernel(find(f"network_{suffix}"), address(self.weights), together)


class FusedNetwork:
    """A network as one function for this CPU: call it with images, get the network's output.

    Images are uint8 pixels or float32 values, (image, channel, y, x). Calls may come from several
    threads at once; the first has the help of all cores. `single` is what an image by channels
    costs as a share of a vector of images, if it is not to be computed: it decides which images go
    by which schedule. `rules` are for the one whose lanes are images.
    """

    def __init__(
        self,
        network: Network,
        on: Machine | None = None,
        single: float | None = None,
        rules: Rules = DEFAULT,
    ) -> None:
        if not network.parameters and network.parameter_shapes:
            raise TilewrightError(f"network {network.name!r} has no weights to compile with")
        if all(stage.kind in ("input", "flatten") for stage in network.stages):
            raise TilewrightError(
                "no layer of the network computes anything: there is nothing to fuse"
            )
        self.network, self.output_shape = network, network.output_shape
        self.jobs: dict[tuple[int, str, int], Job] = {}
        # Memory of calls that are over, for those to come: taken and given back without a lock.
        self.free: list[Memory] = []
        machine = on or host()
        plans = (by_images(network, machine.target, rules), by_channels(network, machine.target))
        # Packing megabytes of weights twice takes as long as loading the machine code does.
        with ThreadPoolExecutor(len(plans)) as pool:
            packed = [pool.submit(pack, plan, network.parameters) for plan in plans]
            self.many, self.few = (
                Variant(network, machine, *each) for each in zip(plans, packed, strict=True)
            )
        computed = single_cost(self.few.schedule, self.many.schedule)
        self.single = computed if single is None else single

    def __call__(self, images: NDArray[Any]) -> NDArray[np.float32]:
        """The outputs for a batch of any size."""
        if images.dtype not in PIXELS:
            images = images.astype(np.float32, copy=False)
        if images.shape[1:] != self.network.input.shape:
            raise TilewrightError(
                f"images are {dimensions(images.shape[1:])}, but {self.network.name!r} takes "
                f"{dimensions(self.network.input.shape)}"
            )
        outputs = np.empty((len(images), *self.output_shape), np.float32)
        self.free.append(self._work(np.ascontiguousarray(images), outputs))
        return outputs

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The layers of the input and of each group, in the order of `run`'s result."""
        groups = self.many.schedule.groups
        return ("input",), *(tuple(stage.name for stage in group.stages) for group in groups)

    def run(self, images: NDArray[Any], outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Fill `outputs`; both arrays are contiguous and of the network's shapes.

        Returns the clock ticks that each part took, on all cores together.
        """
        memory = self._work(images, outputs)
        ticks = memory.ticks.copy()
        self.free.append(memory)
        return ticks

    def _work(self, images: NDArray[Any], outputs: NDArray[np.float32]) -> Memory:
        """Fill `outputs`; the memory that was worked in comes back, with the ticks in it."""
        workers = team()
        work = self._job(len(images), "u8" if images.dtype == UINT8 else "f32", workers.cores)
        try:
            memory = self.free.pop()
        except IndexError:
            memory = Memory(max(self.many.scratch, self.few.scratch), len(self.parts))
        memory.ticks.fill(0)
        workers.work(work, memory, address(images), address(outputs))
        return memory

    def shares(self, images: int, cores: int) -> Shares:
        """Which of so many images go by which schedule."""
        return shares(images, self.many.schedule.target.lanes, cores, self.single)

    def _job(self, images: int, suffix: str, cores: int) -> Job:
        """The job for a number of images, made once."""
        found = self.jobs.get((images, suffix, cores))
        if found is None:
            lanes, together = self.many.schedule.target.lanes, self.many.schedule.together
            divided = self.shares(images, cores)
            found = job(
                divided,
                self.many.kernel(suffix) if divided.many else None,
                self.few.kernel(suffix) if divided.many < images else None,
                piece_of(divided.many, lanes, together, cores),
                math.prod(self.network.input.shape) * (1 if suffix == "u8" else 4),
                math.prod(self.network.output_shape) * 4,
                cores,
            )
            self.jobs[images, suffix, cores] = found
        return found
