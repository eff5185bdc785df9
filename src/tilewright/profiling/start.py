"""The start of a program: what it called before the run, recorded in a process of its own.

A context is made, modules are loaded and a device's first memory is taken once in a process, and
what records them slows down whatever comes after. So the start is done again in a new process, up
to the end of the warm-up, and what that process reports is the start of the profile. Then it frees
all memory: that is the end of a program, and costs, too.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tilewright import environment, plan_file
from tilewright.errors import TilewrightError
from tilewright.job import Request, make_ready
from tilewright.profiling.own_calls import WithoutOwnCalls
from tilewright.profiling.result import Profile
from tilewright.profiling.tally import Row, Tally
from tilewright.trace import Event, Trace, starting

BEFORE = "the process, its libraries"  # up to the first phase
RUN = "forward"
BUILD, SEND, FREE = "build kernels", "send weights", "free memory"


class Start(msgspec.Struct, frozen=True):
    """Phases with their seconds, and rows of calls, copies and kernels, as in a profile."""

    phases: tuple[tuple[str, float], ...]
    rows: tuple[Row, ...]
    notices: tuple[str, ...] = ()


def recorded(request: Request) -> Start:
    """What a new process did to get ready for a request."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "start.json"
        command = [sys.executable, "-m", __name__, str(found)]
        done = subprocess.run(command, input=pickle.dumps(request), capture_output=True)
        if done.returncode:
            *_, last = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason"]
            raise TilewrightError(f"the start could not be recorded: {last}")
        return msgspec.json.decode(found.read_bytes(), type=Start)


def record(request: Request) -> Start:
    """The same in this process, which has not touched a device yet."""
    before, trace = environment.usage().elapsed_seconds, Trace(detailed=True)
    close, notices = _collecting(request, trace)
    with starting(trace):
        ready = make_ready(request, trace)
        with trace.phase(FREE):
            del ready
            _give_back()
    notices += close()
    phases = trace.of("phase")
    tallies: dict[str, Tally] = {}

    def sort(event: Event) -> None:
        name = _phase(event, phases)
        tallies.setdefault(name, Tally(name))(event)

    ours = WithoutOwnCalls(sort)
    kinds = trace.of("api", "copy", "memset", "kernel", "profiler")
    for event in sorted(kinds, key=lambda event: event.start):
        ours(event)
    rows = [row for each in tallies.values() for row in each.rows({}) if row.kind != "profiler"]
    times = ((event.name, event.seconds) for event in phases)
    return Start(((BEFORE, before), *times), tuple(rows), tuple(notices))


def with_start(profile: Profile, start: Start) -> Profile:
    """A profile with what the program did before the run."""
    return replace(
        profile, start=start.phases, start_rows=start.rows,
        notices=(*profile.notices, *start.notices),
    )  # fmt: skip


def with_run(phases: Sequence[tuple[str, float]], seconds: float) -> list[tuple[str, float]]:
    """The phases of a whole program: memory is freed after the run."""
    end = [phase for phase in phases if phase[0] == FREE]
    return [*(phase for phase in phases if phase not in end), (RUN, seconds), *end]


def _phase(event: Event, phases: Sequence[Event]) -> str:
    """Where it began. Kernels are built and weights sent in turns: copies of then are weights."""
    inside = [each.name for each in phases if each.start <= event.start <= each.end]
    if not inside:
        return ""
    if inside[0] in (BUILD, SEND):
        return SEND if event.kind == "copy" else BUILD
    return inside[0]


def _give_back() -> None:
    """What libraries keep for the next who asks, where they were used."""
    if cupy := sys.modules.get("cupy"):
        cupy.get_default_memory_pool().free_all_blocks()
        cupy.get_default_pinned_memory_pool().free_all_blocks()
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()


def _collecting(request: Request, trace: Trace) -> tuple[Callable[[], list[str]], list[str]]:
    """CUPTI on a CUDA GPU, from before there is a context; what ends it, and what is amiss."""
    device = request.device if request.plan is None else plan_file.device_of(request.plan)
    if device.kind != "cuda":
        return list, []
    from tilewright.runtime import cupti

    try:
        collector = cupti.CuptiCollector(trace, device.index)
    except cupti.Refused as refused:
        return list, [f"no CUPTI: calls of the start are not seen: {refused}"]
    trace.collector = collector

    def close() -> list[str]:
        collector.close()
        return collector.notices

    return close, []


if __name__ == "__main__":
    try:
        made = record(pickle.load(sys.stdin.buffer))
    except TilewrightError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(made))
