"""A ladder's rungs proven: those that were proven before are believed, others are side by side."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilewright import environment
from tilewright.climb.rows import Row
from tilewright.contest import Progress
from tilewright.judge import WorkerStopped
from tilewright.model.layers import MissingForm
from tilewright.model.network import Network
from tilewright.rungs.rung import Rung
from tilewright.runtime import cuda
from tilewright.runtime.device import CPU, Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.before_run import in_worker
from tilewright.truth.kept import KeptProofs
from tilewright.truth.shared import compile_shared
from tilewright.truth.side_by_side import Asked, as_they_come, room, shares, side_by_side
from tilewright.truth.verify import Verdict, fresh_seed, verify, verify_briefly

Proof = Callable[[Rung, Callable[[], None]], Verdict]  # told of each trial


@dataclass(frozen=True)
class Proofs:
    """How rungs are proven. `begun` are verdicts to come, by the labels of rungs: those that are
    being proven at the same time, elsewhere.
    """

    prove: Proof
    begun: Mapping[str, Future[Any]] = field(default_factory=dict)


# Given rungs and the proof of one, a way to have them proven elsewhere at the same time.
Elsewhere = Callable[[Sequence[Rung], Proof], AbstractContextManager[Proofs]]


def prove(
    able: Sequence[Rung],
    device: Device,
    network: Network,
    batch: int,
    short: bool,
    progress: Progress,
    elsewhere: Elsewhere | None,
    kept: KeptProofs | None,
    meanwhile: Callable[[], Mapping[str, str | None]] = dict,
) -> Iterator[Row]:
    """Rungs with their verdicts, as they come. `meanwhile` is done when proofs have begun, and says
    what keeps some of them from running, after all."""
    # What is wrong with a user's file is told before minutes of others' proofs.
    mine, ours = ([r for r in able if (r.origin is None) == of_ours] for of_ours in (False, True))
    known = {} if kept is None else _known(ours, device, kept)
    rest = [rung for rung in ours if rung.label not in known]
    with _proofs(rest, device, network, batch, short, elsewhere, progress) as proofs:
        missing = meanwhile()
        order = as_they_come((*mine, *ours), proofs.begun)
        for index in range(len(able)):
            if waiting := sum(not future.done() for future in proofs.begun.values()):
                progress(f"proving side by side, {waiting} to go", index, len(able))
            rung = next(order)
            place, count = able.index(rung), itertools.count(1)

            def tell(name: str = rung.label, at: int = index, count: Iterator[int] = count) -> None:
                progress(f"proving {name}, trial {next(count)}", at, len(able))

            if (reason := missing.get(rung.label)) is not None:
                yield Row(rung, missing=reason, place=place)
                continue
            if rung.label not in proofs.begun:
                progress(f"proving {rung.label}", index, len(able))
            try:
                if (verdict := known.get(rung.label)) is None:
                    verdict = proofs.prove(rung, tell)
                    if kept is not None:
                        kept.keep(rung, device_of(rung, device), verdict)
                yield Row(rung, verdict=verdict, place=place)
            except (DoesNotFit, MissingForm, WorkerStopped) as error:
                yield Row(rung, missing=str(error), place=place)


def device_of(rung: Rung, device: Device) -> Device:
    """Where a rung runs on a device's ladder: there, or beside it on the CPU."""
    return device if device.kind in rung.devices or rung.origin else CPU


def _known(able: Sequence[Rung], device: Device, kept: KeptProofs) -> dict[str, Verdict]:
    """What was found before of rungs, by their labels."""
    known: dict[str, Verdict] = {}
    for rung in able:
        with suppress(DoesNotFit, MissingForm):  # told in its turn
            if (verdict := kept.find(rung, device_of(rung, device))) is not None:
                known[rung.label] = verdict
    return known


def _proof(
    device: Device, network: Network, batch: int, short: bool, rung: Rung, tell: Callable[[], None]
) -> Verdict:
    given = verify_briefly if short else verify
    return given(in_worker(rung), device_of(rung, device), network, batch=batch, progress=tell)


def _proofs(
    able: Sequence[Rung],
    device: Device,
    network: Network,
    batch: int,
    short: bool,
    elsewhere: Elsewhere | None,
    progress: Progress,
) -> AbstractContextManager[Proofs]:
    """Side by side on a GPU; a CPU is busy enough with one."""
    here = partial(_proof, device, network, batch, short)
    many = [rung for rung in able if device_of(rung, device) == device]
    if elsewhere is not None:
        return elsewhere(many, here)
    if device.kind != "cuda" or len(many) < 2 or short or not cuda.takes_processes(device.index):
        return nullcontext(Proofs(here))
    asked = Asked(device, network, batch, fresh_seed())
    return _in_processes(many, asked, here, progress)


@contextmanager
def _in_processes(
    many: Sequence[Rung], asked: Asked, here: Proof, progress: Progress
) -> Iterator[Proofs]:
    """Proofs in other processes, which tell nothing before they are done; others are made here."""
    memory = cuda.device_limits(asked.device).memory_bytes
    wanted = sum(len(shares(rung, asked.network)) for rung in many)
    given = room(wanted, environment.cpu_cores(), memory, environment.memory_bytes())

    def first() -> None:
        progress("compiling what all rungs share", 0, len(many))
        compile_shared(many, asked.device, asked.network, asked.batch, asked.seed)

    with side_by_side(many, asked, given, first) as (prove, begun):
        yield Proofs(
            lambda rung, tell: prove(rung) if rung.label in begun else here(rung, tell), begun
        )
