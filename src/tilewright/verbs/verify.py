"""`tilewright.verify`: proof that rungs and kernel files compute the right answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import environment
from tilewright.errors import TilewrightError, unknown
from tilewright.judge.check import Checked, check
from tilewright.model import zoo
from tilewright.model.layers import MissingForm
from tilewright.model.load import Net, describe
from tilewright.model.network import Network
from tilewright.results.check import CheckRecord, record
from tilewright.rungs import NAMES, OWN_SUFFIXES, choose, find
from tilewright.runtime.device import OPENCL, Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.registry import gpu_backend
from tilewright.terminal import printable
from tilewright.truth.findings import Sanitized
from tilewright.truth.sanitize import sanitize as look_closer
from tilewright.truth.verify import Verdict, fresh_seed
from tilewright.truth.verify import verify as prove
from tilewright.verbs.arguments import (
    PRECISIONS,
    Progress,
    Tell,
    device_of,
    one_of,
    one_or_several,
    quiet,
    seed_or_none,
    telling,
)
from tilewright.verbs.result import Result, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False, eq=False)
class VerifyResult(Result[CheckRecord]):
    """What became of every rung and kernel file: right, or what is wrong with it and where."""

    found: tuple[tuple[Checked, Sanitized | None], ...]

    @property
    def passed(self) -> bool:
        """Whether all are right, and a simulator, if one was asked, found nothing."""
        return all(each.passed and not (more and more.findings) for each, more in self.found)

    @property
    def headline(self) -> str:
        return ", ".join(f"{each.name} is {each.outcome}" for each, _ in self.found)

    def report(self, width: int = 100) -> Iterator[RenderableType]:
        from tilewright.views.check import lines

        for checked, sanitized in self.found:
            yield from lines(checked, sanitized, self.record.seed, width)

    def rows(self) -> list[dict[str, Value]]:
        """A row a rung or file."""
        return table_of(self.record.files)

    def __str__(self) -> str:
        """Lines as they are: compilers point at places in them."""
        return "\n".join(printable(str(line)) for line in self.report())


@quiet
def verify(
    rung: str | Path | Sequence[str | Path],
    net: Net | None = None,
    *,
    device: str | Device | None = None,
    precision: str | None = None,
    thorough: bool = False,
    sanitize: bool = False,
    seed: int | None = None,
    trust: bool = False,
    progress: Progress = False,
    each: Callable[[VerifyResult], None] = lambda one: None,
) -> VerifyResult:
    """Prove that rungs and kernel files compute the right answer, or say what is wrong with them.

    `rung` is a rung's name or a kernel file, or several. `net` is a network whose layers are tried
    besides odd ones, as for `run`; without it, kernel files are tried on the convolutions of the
    zoo's. `device` is by default opencl, or where the first rung runs. `precision` is for rungs
    with a choice. A kernel file is tried in seconds, or, if `thorough`, as the ladder's rungs are;
    `sanitize` looks for races in it with Oclgrind or compute-sanitizer, and `trust` runs it also
    where the system cannot isolate it. `seed` gives the same numbers again. `each` is called with
    every single outcome as soon as it is known; `progress` is as for `run`.
    """
    names = one_or_several("rung", rung)
    if not names:
        raise TilewrightError("argument rung: name at least one rung or kernel file")
    arithmetic = one_of("precision", precision, PRECISIONS)
    on = _default_device(names[0]) if device is None else device_of(device)
    network = None if net is None else describe(net)
    number = seed_or_none(seed)
    number = fresh_seed() if number is None else number
    _check(names, on, sanitize, arithmetic)

    def made(*found: tuple[Checked, Sanitized | None]) -> VerifyResult:
        held = record(found, str(on), number, thorough, environment.fingerprint())
        return VerifyResult(held, found)

    results = []
    for index, name in enumerate(names):
        with telling(progress) as tell:
            tell_of = partial(_tell, tell, Path(name).name, index, len(names))
            if str(name) in NAMES:
                checked = _proven(str(name), on, arithmetic, network, number, tell_of)
            else:
                networks = _all() if network is None else [network]
                count = partial(_count, tell_of)
                checked = check(Path(name), on, networks, number, thorough, trust, count)
            sanitized = None
            if sanitize and checked.outcome in ("right", "wrong", "stopped"):
                sanitized = look_closer(Path(name), on, tell_of)
        results.append((_without_evidence(checked), sanitized))
        each(made(results[-1]))
    return made(*results)


def _default_device(first: str | Path) -> Device:
    return Device(find(str(first)).devices[0]) if str(first) in NAMES else OPENCL


def _check(
    names: Sequence[str | Path], device: Device, sanitize: bool, precision: str | None
) -> None:
    """All that can be said before minutes of trials."""
    files = [Path(name) for name in names if str(name) not in NAMES]
    for name in names:
        if str(name) in NAMES:
            choose(device, str(name), precision)
            if sanitize:
                raise TilewrightError(f"--sanitize is for kernel files, and {name!r} is none")
    if files:
        if precision is not None:
            raise TilewrightError("--precision is not for kernel files: their headers have it")
        if device.kind == "cpu":
            raise TilewrightError("kernel files run with --device opencl or cuda, not on cpu")
        if reason := gpu_backend(device.kind).missing(device):
            raise TilewrightError(f"device '{device}': {reason}")
    for path in files:
        if not path.exists():  # what is there, but is no kernel, does not keep others from theirs
            if path.suffix not in OWN_SUFFIXES and len(path.parts) == 1:
                raise unknown("rung or kernel file (.cl, .cu)", str(path), NAMES)
            raise TilewrightError(
                f"cannot read the kernel file {path}: there is none; `tilewright kernel new NAME` "
                "writes one to start from"
            )


def _proven(
    name: str,
    device: Device,
    precision: str | None,
    network: Network | None,
    seed: int,
    tell: Callable[[str], None],
) -> Checked:
    """A rung of the ladder, held to what the ladder is held to."""
    rung, trials = choose(device, name, precision), itertools.count(1)
    done = Checked(name, rung.label, rung.idea, rung.precision.name, "refused")
    try:
        verdict = prove(rung, device, network, seed, progress=lambda: _count(tell, next(trials)))
    except (DoesNotFit, MissingForm) as error:
        return replace(done, problem=str(error))
    if verdict.fault is not None:
        return replace(done, outcome="wrong", problem=str(verdict.fault), verdict=verdict)
    return replace(done, outcome="right", verdict=verdict)


def _all() -> list[Network]:
    return [make() for make in zoo.ZOO.values()]


def _count(tell: Callable[[str], None], trials: int) -> None:
    tell(f"trial {trials}")


def _tell(tell: Tell, name: str, index: int, of: int, doing: str) -> None:
    tell(f"{name}: {doing}", index, of)


def _without_evidence(checked: Checked) -> Checked:
    """Arrays that were wrong are many, and have been looked at."""
    verdict: Verdict | None = checked.verdict
    if verdict is None or verdict.fault is None:
        return checked
    fault = replace(verdict.fault, evidence=None)
    return replace(checked, verdict=replace(verdict, fault=fault))
