"""Plans of whole-network kernels, timed: what `benchmarks.fit` fits the planner's constants to.

    python -m benchmarks.plans --output benchmarks/results/DATE-plans-h200.json
    python -m benchmarks.plans --output FILE.json --as-cut --networks vgg drawn-1 ... --plans 8

Needs a Hopper GPU. The convolutions of each network, and what follows them up to the first large
fully connected layer, as one kernel, and cut in two after each of its operations where both parts
have sums; or, `--as-cut`, those kernels that the network is cut into, of which none adds another's
results: of each, for every number of warps and groups, the plans that the table holds for the best,
with one sum of each in fp32 and with two. Pixels, features and weights are random; times are device
events', all plans of a kernel in turns.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.builds import every_network
from benchmarks.peers import timed

from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cuda.arithmetic import ARITHMETICS, Arithmetic
from tilewright.fuse.cuda.arrange import all_stacks, divisions
from tilewright.fuse.cuda.branches import is_chain
from tilewright.fuse.cuda.choice import Stacked
from tilewright.fuse.cuda.cut import choose
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.panels import in_whole_panels
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.stack import Source, Stack
from tilewright.fuse.cuda.to_do import is_large, to_do
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.truth.trials import random_parameters

NETWORKS = ("cifar10", "ece408", "lenet5")
PRECISIONS = ("fp16", "tf32", "fp32")
IMAGES = (10_000, 50_000)  # fewer take less time than the host to begin them
NEVER = 1e6  # cycles of a product: no lane has two sums of each then
CHUNK_WORDS = 32  # of a row in panels
AS_CUT = -1  # instead of a cut's number, where a kernel is one of those that are chosen
CAPABILITY = 90


class Part(NamedTuple):
    """Operations that a kernel takes, and by which of the ways to divide an image; `cut` says how
    the network is cut: operations of its first kernel, or `AS_CUT`."""

    cut: int
    first: int
    todo: Sequence[Operation]
    division: int = 0


def kernels(network: Network) -> Iterator[Part]:
    """A network as one kernel, and cut in two."""
    todo = to_do(network.stages, HOPPER)
    large = [number for number, each in enumerate(todo) if is_large(each, HOPPER)]
    todo = todo[: large[0]] if large else todo
    yield Part(len(todo), 0, todo)
    for cut in range(1, len(todo)):
        parts = todo[:cut], todo[cut:]
        if all(any(each.kind == "sum" and not each.connected for each in part) for part in parts):
            yield Part(cut, 0, parts[0])
            yield Part(cut, cut, parts[1])


def as_cut(network: Network, precision: str) -> Iterator[Part]:
    """The kernels it is cut into that are stacks, each of what one other gives."""
    stages, arithmetic = network.stages, ARITHMETICS[precision]
    choice = choose(stages, arithmetic, CAPABILITY)
    if choice.apart:  # operations are others then
        return
    todo, first = to_do(stages, HOPPER), 0
    for chosen in choice.kernels:
        part = todo[first : first + chosen.operations]
        if (
            isinstance(chosen, Stacked)
            and is_chain(part)
            and all(len(each.takes) == 1 for each in part)
            and any(each.kind == "sum" for each in part)
        ):
            yield Part(AS_CUT, first, part, chosen.division)
        first += chosen.operations


def plans_of(arithmetic: Arithmetic, part: Part, most: int) -> list[Stack]:
    """The best for each number of warps and groups, of all those the best."""
    found: dict[object, Stack] = {}
    divided = next(itertools.islice(divisions(part.todo), part.division, None))
    for twice in (HOPPER.plain.twice, NEVER):
        gpu = replace(HOPPER, plain=replace(HOPPER.plain, twice=twice))
        every = [plan for plan, _ in all_stacks(arithmetic, (part.division, divided), gpu)]
        for plan in sorted(every, key=lambda plan: plan.cycles(HOPPER)):
            doubled = any(each.shares and each.shares.twice for each in plan.sums)
            found.setdefault((plan.warps, plan.groups, doubled), plan)
    best = sorted(found.values(), key=lambda plan: plan.cycles(HOPPER))[:most]
    return [_whole_rows(plan) for plan in best]


def _whole_rows(plan: Stack) -> Stack:
    """A row in panels is whole chunks."""
    if plan.gives != "panels":
        return plan
    return replace(plan, result_words=-(-plan.result_words // CHUNK_WORDS) * CHUNK_WORDS)


def moved_words(plan: Stack) -> int:
    """Words that an image moves from another kernel, and to others."""
    (channels, height, width), *_ = plan.input_shapes
    given = plan.arithmetic.words(channels) * height * width if plan.given == "words" else 0
    return plan.result_words + given


def described(plan: Stack) -> dict[str, Any]:
    return {
        "operations": len(plan.phases), "warps": plan.warps, "groups": plan.groups,
        "strips": len(plan.strip.starts) if plan.strip else 1, "held": plan.held,
        "staged": plan.staged_bytes, "moved": moved_words(plan),
        "sums": [
            {"rows": each.shares.rows, "columns": each.shares.columns,
             "units": each.shares.units, "wide": each.shares.wide,
             "in_turn": each.shares.in_turn, "twice": each.shares.twice,
             "warpgroup": each.warpgroup, "shared": each.shared,
             "folded": each.operation.folded}
            for each in plan.sums if each.shares
        ],
    }  # fmt: skip


@dataclass(frozen=True)
class Kernel:
    """Part of a network, in a precision, by several plans."""

    network: Network
    precision: str
    part: Part
    plans: Sequence[Stack]

    @property
    def arithmetic(self) -> Arithmetic:
        return ARITHMETICS[self.precision]

    @cached_property
    def texts(self) -> list[str]:
        source: Source = "words" if self.part.first else "uint8"
        return [kernel_text(plan, "layer", self.network.input, source) for plan in self.plans]


def every_kernel(given: argparse.Namespace) -> Iterator[Kernel]:
    bare = every_network()
    for name, precision in itertools.product(given.networks, given.precisions):
        parameters = random_parameters(bare[name], np.random.default_rng(0))
        network = bare[name].with_parameters(parameters)
        for part in as_cut(network, precision) if given.as_cut else kernels(network):
            if (name, precision, part.cut, part.first, len(part.todo)) not in given.known:
                plans = plans_of(ARITHMETICS[precision], part, given.plans)
                yield Kernel(network, precision, part, plans)


def taken(kernel: Kernel, images: int) -> Any:
    """Random pixels, or features as another kernel leaves them."""
    import torch

    if kernel.part.first == 0:
        shape = images, *kernel.network.input.shape
        return torch.randint(0, 256, shape, device="cuda").to(torch.uint8)
    channels, height, width = kernel.part.todo[0].source
    per_word = kernel.arithmetic.per_word
    values = kernel.arithmetic.words(channels) * height * width * per_word
    kind = torch.float16 if per_word == 2 else torch.float32
    return torch.randn((images, values), device="cuda").to(kind).view(torch.int32)


def measured(runtime: Any, kernel: Kernel, given: argparse.Namespace) -> list[dict[str, Any]]:
    import cupy
    import torch

    made = []
    for plan, text in zip(kernel.plans, kernel.texts, strict=True):
        compiled = runtime.compile_text("layer", text, plan.threads, plan.shared_bytes)
        own = plan.parameters(kernel.network.parameters), plan.tables[0]
        made.append((compiled, [runtime.upload(each) for each in own]))
    rows: list[dict[str, Any]] = [
        {"network": kernel.network.name, "precision": kernel.precision, "cut": kernel.part.cut,
         "first": kernel.part.first, **described(plan), "ms": {}}
        for plan in kernel.plans
    ]  # fmt: skip
    for images in given.images:
        size = in_whole_panels(images) * max(plan.result_words for plan in kernel.plans)
        out = torch.empty(size, dtype=torch.int32, device="cuda")
        arrays = [cupy.from_dlpack(each) for each in (taken(kernel, images), out)]

        def call(compiled: Any, own: Any, items: int, arrays: Any = arrays) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            runtime.kernels = cupy.cuda.ExternalStream(stream)
            grid = min(runtime.limits.processors, items), 1, 1
            runtime.enqueue(compiled, grid, (*arrays, *own, items), ())

        calls = {}
        for number, (plan, each) in enumerate(zip(kernel.plans, made, strict=True)):
            items = images * (len(plan.strip.starts) if plan.strip else 1)
            calls[str(number)] = partial(call, *each, items)
        samples = timed(calls, given.repeats)
        for number, row in enumerate(rows):
            seconds = samples[str(number)]["samples_seconds"]
            row["ms"][str(images)] = [round(1e3 * each, 5) for each in seconds]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--as-cut", action="store_true", help="the kernels that are chosen alone")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--images", type=int, nargs="+", default=IMAGES)
    parser.add_argument("--plans", type=int, default=12, help="of each kernel, at most")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--but", type=Path, nargs="*", default=[], metavar="FILE",
                        help="without the kernels that these files have")  # fmt: skip
    given = parser.parse_args()
    rows = (row for file in given.but for row in json.loads(file.read_text())["plans"])
    keys = "network", "precision", "cut", "first", "operations"
    given.known = {tuple(row[key] for key in keys) for row in rows}

    import torch

    from tilewright.runtime.cuda import CudaRuntime
    from tilewright.runtime.device import CUDA

    runtime = CudaRuntime(CUDA)
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": torch.cuda.get_device_name(),
        "plans": [],
    }  # fmt: skip
    every = list(every_kernel(given))
    runtime.compile_ahead([("layer", text) for each in every for text in each.texts])
    for kernel in every:
        document["plans"] += measured(runtime, kernel, given)
        print(kernel.network.name, kernel.precision, kernel.part.cut, kernel.part.first,
              len(document["plans"]), flush=True)  # fmt: skip
    with atomic_write(given.output) as file:
        file.write(json.dumps(document).encode())


if __name__ == "__main__":
    main()
