"""PyTorch on a CUDA GPU, in all its forms, for benchmarks that compare with it; and turns.

- `eager`, `channels-last`: PyTorch with cuDNN's algorithms chosen by trial.
- `compile`: torch.compile, channels last; `compile-autotune`: asked for `max-autotune`.
- `-graph`: the same as a CUDA graph, and then not called plainly; `-pieces`: of many images some at
  a time, besides.

As a graph PyTorch was faster in all 264 cases of `benchmarks/results/2026-11-15-cuda-h200.json` and
`2026-11-17-few-h200.json`. It gets pixels that are normalised already, in its own type.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.measure.samples import Sample
from tilewright.model.network import Network
from tilewright.rungs.vendor.torch import layer_function

PIECE = 2_500
GRAPHS_UP_TO = 1000
COMPILED_FROM = 1000  # images: for each number of them torch.compile compiles once more
# What torch.compile is asked for, by the name that it then has.
MODES = {"compile": None, "compile-autotune": "max-autotune-no-cudagraphs"}
SHORTEST_TURN, MOST_CALLS = 0.01, 1000
BY_HOST = "jax"  # has streams of its own, and is timed by the host's clock
Call = Callable[[], Any]
Forward = Callable[[Any], Any]


def types(precision: str) -> Any:
    """What PyTorch computes with where we have such a precision: tf32x3 stands for float32."""
    import torch

    return torch.float16 if precision == "fp16" else torch.float32


def set_tf32(allowed: bool) -> None:
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True


def forward_of(network: Network, precision: str, channels_last: bool, kind: Any = None) -> Forward:
    """The network in PyTorch's functions, weights on the device in its precision, or of a type."""
    import torch

    functions = []
    for stage in network.stages[1:]:
        tensors = []
        for name in stage.parameter_shapes:
            tensor = torch.from_numpy(network.parameters[name].copy()).cuda()
            tensor = tensor.to(kind or types(precision))
            if channels_last and tensor.ndim == 4:
                tensor = tensor.to(memory_format=torch.channels_last)
            tensors.append(tensor)
        functions.append(layer_function(stage, *tensors))

    def forward(x: Any) -> Any:
        given = [x]
        for function, taken in zip(functions, network.sources, strict=True):
            given.append(function(*(given[each] for each in taken)))
        return given[-1]

    return forward


def compiled_forwards(network: Network, precision: str, names: Iterable[str]) -> dict[str, Forward]:
    """By the names of `MODES`. What was compiled before is forgotten: functions that differ in
    their weights alone count as one that is compiled too often."""
    import torch

    torch.compiler.reset()
    forward = forward_of(network, precision, True)
    return {name: torch.compile(forward, mode=MODES[name], dynamic=False) for name in names}


def graphed(forward: Forward, x: Any) -> Call:
    """A CUDA graph of one call."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            forward(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # JAX has threads of its own; what they do on the device would spoil a capture otherwise.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        forward(x)
    return graph.replay


def in_pieces(forward: Forward, x: Any) -> Call:
    import torch

    out = torch.empty((len(x), forward(x[:1]).shape[1]), dtype=x.dtype, device="cuda")

    def call() -> None:
        for first in range(0, len(x), PIECE):
            out[first : first + PIECE] = forward(x[first : first + PIECE])

    return call


def normalised(network: Network, pixels: Any, precision: str) -> Any:
    """What the libraries are given."""
    return (pixels.float() * network.input.scale + network.input.shift).to(types(precision))


def peers(
    network: Network, precision: str, pixels: Any, compiled: Iterable[str]
) -> tuple[dict[str, Call], dict[str, str]]:
    """PyTorch in its forms and those of torch.compile that are named, ready to be called on these
    pixels; and why some are not. What fails is none of the others' business."""
    import torch

    plain = normalised(network, pixels, precision)
    last = plain.to(memory_format=torch.channels_last)
    kinds: dict[str, tuple[Forward, Any]] = {
        "eager": (forward_of(network, precision, False), plain),
        "channels-last": (forward_of(network, precision, True), last),
    }
    for name, forward in compiled_forwards(network, precision, compiled).items():
        kinds[name] = (forward, last)
    calls: dict[str, Call] = {}
    failed: dict[str, str] = {}
    for name, (forward, x) in kinds.items():
        try:
            forward(x)
            calls[name] = lambda forward=forward, x=x: forward(x)
            if len(x) <= GRAPHS_UP_TO:
                calls[f"{name}-graph"] = graphed(forward, x)
                del calls[name]
            if len(x) > PIECE and name not in MODES:  # which would compile once more
                calls[f"{name}-pieces"] = in_pieces(forward, x)
        except Exception as error:
            failed[name] = told(error)
    return calls, failed


def told(error: Exception) -> str:
    """An error in a line: compilers write pages."""
    first, *_ = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first}"


def timed(calls: dict[str, Call], repeats: int) -> dict[str, dict[str, Any]]:
    """Seconds of a call, each in turns with the others, by device events."""
    import torch

    counts = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        spent = time.perf_counter() - start
        counts[name] = max(1, min(MOST_CALLS, int(SHORTEST_TURN / spent)))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    shuffler = random.Random(1)
    for _ in range(repeats):
        for name in shuffler.sample(list(calls), len(calls)):
            call, count = calls[name], counts[name]
            if count > 1:  # what takes as long as a turn need not find its caches warm
                call()
            torch.cuda.synchronize()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start = time.perf_counter()
            before.record()
            for _ in range(count):
                call()
            after.record()
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            spent = spent if name == BY_HOST else 1e-3 * before.elapsed_time(after)
            seconds[name].append(spent / count)
    found = {}
    for name, values in seconds.items():
        sample = Sample(tuple(values))
        found[name] = {
            "median_seconds": sample.median,
            "best_seconds": sample.best,
            "interval_seconds": sample.interval.ends,
            "calls_a_turn": counts[name],
            "samples_seconds": values,
        }
    return found
