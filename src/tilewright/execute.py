"""A plan made real: kernels built on a runtime, outputs allocated, images sent through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.ladder import choose
from tilewright.ladder.rung import Launch, Rung
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.runtime import Buffer, Runtime
from tilewright.trace import Trace


class Program:
    """A network ready to run. Building is slow and done here; calling is all that is timed."""

    def __init__(self, network: Network, plan: Plan, rungs: dict[str, Rung] | None = None) -> None:
        """`rungs` supplies rungs that are not on the ladder, by the names the plan uses."""
        if not network.parameters and network.parameter_shapes:
            raise TilewrightError(
                f"network {network.name!r} has no weights: give some with --weights, "
                f"or make them with `tilewright train {network.name}`"
            )
        known = rungs or {step.rung: choose(plan.device, step.rung) for step in plan.steps}
        self.network = network
        self.plan = plan
        self.runtime: Runtime = known[plan.steps[0].rung].open_runtime(plan.device)
        by_name = {stage.name: stage for stage in network.stages}
        self.steps: list[tuple[Launch | None, tuple[int, ...], bool]] = []
        for step in plan.steps:
            stages = tuple(by_name[name] for name in step.layers)
            # Flattening alone is a matter of reading the same memory with another shape.
            moves_nothing = all(stage.kind == "flatten" for stage in stages)
            launch = (
                None
                if moves_nothing
                else known[step.rung].prepare(self.runtime, stages, network.parameters)
            )
            only_input = [stage.kind for stage in stages] == ["input"]
            self.steps.append((launch, stages[-1].output_shape, only_input))
        self.outputs: list[Buffer] = []
        self.capacity = 0

    def create_outputs(self, images: int) -> None:
        """Allocate the output of every step for the largest batch of a run over `images`."""
        self.capacity = min(self.plan.batch, images)
        self.outputs = [
            self.runtime.allocate((self.capacity, *shape)) if launch else None
            for launch, shape, _ in self.steps
        ]

    def __call__(
        self,
        images: NDArray[Any],
        trace: Trace | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> NDArray[np.float32]:
        """The network's output for every image; what happened goes into `trace`."""
        self.runtime.trace = trace or Trace()
        if self.capacity < min(self.plan.batch, len(images)):
            self.create_outputs(len(images))
        results = np.empty((len(images), *self.network.output_shape), np.float32)
        for first in range(0, len(images), self.plan.batch):
            batch = images[first : first + self.plan.batch]
            *_, last = self.activations(self.runtime.upload(batch), batch.dtype == np.uint8)
            results[first : first + len(batch)] = self.runtime.download(last)
            progress(first + len(batch))
        self.runtime.synchronise()
        return results

    def activations(self, x: Buffer, pixels: bool) -> Iterator[Buffer]:
        """The output buffer of every step for a batch, in turn; valid until the next call.

        `pixels` says that the batch holds bytes; values that are float32 already enter the
        network as they are.
        """
        images = len(x)
        for (launch, shape, only_input), output in zip(self.steps, self.outputs, strict=True):
            if launch is None:
                x = x.reshape(images, *shape)
            elif pixels or not only_input:
                out = output[:images]
                launch(x, out)
                x = out
            yield x
