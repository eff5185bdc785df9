"""A compiled network as a callable on NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.arrays import address, batch_of
from tilewright.fuse.cpu.build import Compiled, Machine, compile_network, compiled_folder, host
from tilewright.fuse.cpu.cost import cost_as_rows, cycles, few_costs
from tilewright.fuse.cpu.few import before_gathered, phases, read_in_place
from tilewright.fuse.cpu.parameters import layout, pack
from tilewright.fuse.cpu.schedule import Schedule, by_channels, by_images
from tilewright.fuse.cpu.shares import (
    AS_ROWS,
    Job,
    Kernel,
    Shares,
    jobs,
    longest_of,
    piece_of,
    room,
    rows_of,
    shares,
)
from tilewright.fuse.cpu.team import Memory, team
from tilewright.fuse.cpu.together import DEFAULT, Rules
from tilewright.model.network import Network

Values = NDArray[np.float32]
UINT8 = np.dtype(np.uint8)
# Packing megabytes of weights twice takes as long as loading the machine code does: from here on it
# is done meanwhile, by threads, which take a fraction of a millisecond to start.
MANY_WEIGHTS = 100_000


class Variant:
    """A network by one of the schedules: compiled, and its weights packed."""

    def __init__(
        self, network: Network, on: Machine, plan: Schedule, pack: Callable[[], Values]
    ) -> None:
        self.schedule = plan
        self.memory = layout(plan)
        self._compile = partial(compile_network, network, on, compiled_folder(), plan)
        self._pack = pack
        self._loaded: list[tuple[Compiled, Values]] = []

    def load(self) -> tuple[Compiled, Values]:
        """Its code and weights, made when they are first asked for; to all threads the same."""
        if not self._loaded:
            self._loaded.append((self._compile(), self._pack()))
        return self._loaded[0]

    def kernel(self, suffix: str) -> Kernel:
        """Addresses of the code for one type of pixels."""
        compiled, values = self.load()
        find, weights = compiled.address, address(values)
        if not self.schedule.one_by_one:
            return Kernel(find(f"network_{suffix}"), weights)
        found = [
            (phase, find(f"phase{index}_{suffix}"))
            for index, phase in enumerate(phases(self.schedule))
        ]
        own, gathered = found[: (cut := before_gathered(self.schedule))], found[cut:]
        if read_in_place(self.schedule, suffix) and own[0][0].last == 0:
            own = own[1:]  # there is nothing to do in it
        return Kernel(find(f"network_{suffix}"), weights, tuple(own), tuple(gathered))


class FusedNetwork:
    """A network as one function for this CPU: call it with images, get the network's output.

    Images are (image, channel, y, x): uint8 pixels of 0 to 255, or float32 values, which the
    network takes as they are; other types are refused, and so is what is not an array. Calls may
    come from several threads at once; the first has the help of all cores. A signal's handler may
    raise at any time, as Ctrl-C does. `single` is what an image by channels
    costs as a share of a vector of images, if it is not to be computed: it decides which images go
    by which schedule. `plans` are the schedules by images and by channels, if they are not to be
    chosen here; `rules` are for the choice of the first.
    """

    def __init__(
        self,
        network: Network,
        on: Machine | None = None,
        single: float | None = None,
        rules: Rules = DEFAULT,
        plans: tuple[Schedule, Schedule] | None = None,
    ) -> None:
        if not network.parameters and network.parameter_shapes:
            raise TilewrightError(f"network {network.name!r} has no weights to compile with")
        if not any(stage.layer.computes for stage in network.stages[1:]):
            raise TilewrightError(
                "no layer of the network computes anything: there is nothing to fuse"
            )
        self.network, self.output_shape = network, network.output_shape
        self.jobs: dict[tuple[int, str, int], tuple[Job, ...]] = {}
        # Memory of calls that are over, for those to come with as many workers: taken and given
        # back without a lock. What an interrupted call had is not given back.
        self.free: dict[int, list[Memory]] = {}
        machine = on or host()
        plans = plans or (
            by_images(network, machine.target, rules),
            by_channels(network, machine.target),
        )
        packs = [partial(pack, plan, network.parameters) for plan in plans]
        with ExitStack() as stack:
            if network.parameter_count >= MANY_WEIGHTS:
                pool = stack.enter_context(ThreadPoolExecutor(len(plans)))
                packs = [partial(Future.result, pool.submit(each)) for each in packs]
            self.many, self.few = (
                Variant(network, machine, *each) for each in zip(plans, packs, strict=True)
            )
            computed = few_costs(self.few.schedule, self.many.schedule)
            self.single, *more = computed if single is None else (single, 0.0, 0.0)
            self.once, self.lone = more
            self.rows = rows_of(self.few.schedule) if self.few.schedule.in_rows else None
            self.only_rows = self.rows is not None and (
                not single
                if single is not None
                else cost_as_rows(self.few.schedule, self.many.schedule) < AS_ROWS
            )
            # Where the cost leaves no choice, one of them may never be needed.
            if self.single > 0 and not self.only_rows:
                self.many.load()
            if self.single < math.inf:
                self.few.load()

    def __call__(self, images: Any) -> NDArray[np.float32]:
        """The outputs for a batch of any size."""
        batch = batch_of(images, self.network.input.shape, self.network.name)
        outputs = np.empty((len(batch), *self.output_shape), np.float32)
        self._work(batch, outputs, None)
        return outputs

    def into(self, images: NDArray[Any], outputs: NDArray[np.float32]) -> None:
        """Fill `outputs`; both arrays are contiguous and of the network's shapes."""
        self._work(images, outputs, None)

    @cached_property
    def parts(self) -> tuple[tuple[str, ...], ...]:
        """The layers of the input and of each group, in the order of `run`'s result."""
        groups = self.many.schedule.groups
        return ("input",), *(tuple(stage.name for stage in group.stages) for group in groups)

    def run(self, images: NDArray[Any], outputs: NDArray[np.float32]) -> NDArray[np.int64]:
        """Fill `outputs`; both arrays are contiguous and of the network's shapes.

        Returns the clock ticks that each part took, on all cores together.
        """
        assert images.flags.c_contiguous and outputs.flags.c_contiguous
        ticks = np.empty(len(self.parts), np.int64)
        self._work(images, outputs, ticks)
        return ticks

    def _work(
        self,
        images: NDArray[Any],
        outputs: NDArray[np.float32],
        ticks: NDArray[np.int64] | None,
    ) -> None:
        """Fill `outputs`, and `ticks` if they are asked for."""
        workers = team()
        work = self._jobs(len(images), "u8" if images.dtype == UINT8 else "f32", workers.cores)
        free = self.free.setdefault(workers.workers, [])
        try:
            memory = free.pop()
        except IndexError:
            many, few = self.many.memory, self.few.memory
            slots, own = room(self.many.schedule.target.lanes, workers.cores, few.slot), 0
            if self.rows is not None:
                slots, own = self.rows.apart * workers.cores, self.rows.piece
            # The slots of a worker lie behind what the one before it works in, whichever way.
            floats = max(many.size, few.size) + own * few.slot
            slots = max(slots, own) * few.slot
            memory = Memory(floats, slots, len(self.parts), workers.workers)
        memory.ticks.fill(0)
        workers.work(work, memory, address(images), address(outputs))
        if ticks is not None:
            ticks[:] = memory.ticks
        free.append(memory)

    def shares(self, images: int, cores: int) -> Shares:
        """Which of so many images go by which schedule."""
        lanes, slot = self.many.schedule.target.lanes, self.few.memory.slot
        divided = shares(
            images, lanes, cores, self.single, self.once, self.lone, any_few=not slot, slot=slot
        )
        if self.rows is None:
            return divided
        return self.rows.shares(0 if self.only_rows else divided.many, images, cores)

    def _jobs(self, images: int, suffix: str, cores: int) -> tuple[Job, ...]:
        """The jobs for a number of images, made once."""
        found = self.jobs.get((images, suffix, cores))
        if found is None:
            plan = self.many.schedule
            divided = self.shares(images, cores)
            piece = piece_of(divided.many, plan.target.lanes, plan.together, cores)
            found = jobs(
                divided,
                self.many.kernel(suffix) if divided.many else None,
                self.few.kernel(suffix) if divided.many < images else None,
                piece,
                longest_of(
                    piece if divided.many else divided.rows, plan.target.lanes, cores, cycles(plan)
                ),
                math.prod(self.network.input.shape) * (1 if suffix == "u8" else 4),
                math.prod(self.network.output_shape) * 4,
                cores,
            )
            self.jobs[images, suffix, cores] = found
        return found
