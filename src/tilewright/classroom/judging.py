"""What a worker does for a class: judges what was handed in, and times the marks of a task.

It is the judging of `kernel grade`: proven first, then timed in turns with one rung, each in
workers that end with it; every answer for the task's images is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from tilewright import environment
from tilewright.classroom.course import Task
from tilewright.classroom.handed_in import kernel_of
from tilewright.classroom.marks import Where
from tilewright.errors import TilewrightError
from tilewright.judge.submissions import Submission
from tilewright.results.grade import Judged
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from tilewright.judge.arena import Entry
    from tilewright.judge.referee import Referee

Tell = Callable[[str], None]
LONGEST_REASON = 20_000  # characters: a compiler can be made to say a lot
MOST_TASKS = 16  # whose images are kept in memory


class Judge(Protocol):
    """Whoever can judge. Goes to other processes: it can be pickled."""

    def prepare(self, task: Task) -> Where:
        """What it judges with; an error if this machine cannot judge the task, before anybody's
        work is taken."""
        ...

    def __call__(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged: ...

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        """Times of the task's marks, by name."""
        ...


class KernelJudge:
    """Kernel files, by proof and time."""

    def prepare(self, task: Task) -> Where:
        _referee(task)
        return _where(task.device)

    def __call__(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        kernel = kernel_of(files)
        others = {name: content for name, content in files.items() if name != kernel}
        handed_in = Submission("", kernel, files[kernel], included=others)
        judged = replace(_referee(task), tell=tell)(handed_in)
        return structs.replace(judged, reason=judged.reason[:LONGEST_REASON])

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        """A mark that this machine cannot have is refused, with the reason."""
        from tilewright.judge.bench import bench

        referee = _referee(task)
        entries: list[Entry] = []
        made: dict[str, Judged] = {}
        for name in dict.fromkeys(task.marks):
            try:
                entries.append(_entry(task, name))
            except TilewrightError as error:
                made[name] = Judged(outcome="refused", reason=str(error))
        if not entries:
            return made
        found = bench(
            entries, referee.network, referee.dataset, task.device, task.batch, referee.rounds,
            progress=lambda doing, done, of: tell(f"{doing}: {done} of {of}"),
        )  # fmt: skip
        for row in found.rows:
            made[row.entry.rung.name] = (
                Judged(outcome="refused", reason=row.refused)
                if row.refused
                else Judged(
                    outcome="right",
                    operations={name: each.seconds for name, each in row.warm.items()},
                    cold={name: each.seconds for name, each in row.cold.items()},
                )
            )
        return made


def _where(device: Device) -> Where:
    """Equal machines are the same to it: times are."""
    from tilewright.runtime.registry import gpu_backend

    machine = f"{environment.cpu_model()}, {environment.cpu_cores()} cores"
    found = list(gpu_backend(device.kind).inventory())
    here = next((each for each in found if Device.parse(each.name).index == device.index), found[0])
    drivers = {each.driver for each in environment.gpus()} if device.kind == "cuda" else set()
    return Where(machine, here.model, ", ".join((here.details, *sorted(drivers))))


@lru_cache(maxsize=MOST_TASKS)
def _referee(task: Task) -> Referee:
    from tilewright.climb import prepare
    from tilewright.judge.bench import ROUNDS
    from tilewright.judge.referee import Referee
    from tilewright.rungs import choose
    from tilewright.runtime.registry import gpu_backend
    from tilewright.views.check import lines

    baseline = choose(task.device, task.against)
    subject = prepare(task.network, None, task.data, task.images, or_all=True)
    gpu_backend(task.device.kind).open_runtime(task.device, "resident")  # that it is there
    return Referee(
        subject.network, subject.dataset, task.device, task.batch, baseline, task.seed,
        task.repeats or ROUNDS, task.limit,
        lambda checked: "\n".join(lines(checked, None, task.seed)),
    )  # fmt: skip


def _entry(task: Task, name: str) -> Entry:
    from tilewright.judge.arena import Entry
    from tilewright.judge.office import is_native
    from tilewright.rungs import choose, find
    from tilewright.runtime.device import CPU

    rung = find(name)
    elsewhere = rung.vendor and task.device.kind not in rung.devices
    if elsewhere and not is_native(task.device):
        raise TilewrightError(f"{name} does not run on {task.device}")
    device = CPU if elsewhere else task.device  # PoCL's device is the CPU
    return Entry(choose(device, name), device)
