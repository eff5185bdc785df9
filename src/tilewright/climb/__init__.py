"""The whole ladder in one go: every rung verified, then all of them timed in turns."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tilewright.climb.proofs import Elsewhere, Proof, Proofs, device_of, prove
from tilewright.climb.rows import NOBODY, Audience, Ladder, Planned, Row, changed
from tilewright.climb.subject import SAMPLE_CLASSES, Subject, prepare
from tilewright.contest import Contest, Progress, begin_convolutions
from tilewright.errors import TilewrightError, unknown
from tilewright.measure.conditions import Watch
from tilewright.measure.samples import Rounds
from tilewright.model.layers import MissingForm
from tilewright.model.network import Network
from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.results.climbed import HOST
from tilewright.results.ladder import ALL
from tilewright.rungs import not_among, rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime import HostArray
from tilewright.runtime.device import CPU, Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.registry import gpu_backend
from tilewright.truth.before_run import prove_plan
from tilewright.truth.kept import KeptProofs

__all__ = [
    "NOBODY", "SAMPLE_CLASSES", "Audience", "Elsewhere", "Ladder", "Planned", "Proof", "Proofs",
    "Row", "Subject", "changed", "climb", "device_of", "prepare", "with_own",
]  # fmt: skip


def climb(
    network: Network,
    images: HostArray,
    device: Device,
    batch: int,
    repeats: int | Rounds,
    memory: str | None = None,
    guests: Sequence[Rung] = (),
    own: Sequence[Rung] = (),
    progress: Progress = lambda doing, done, of: None,
    *,
    planned: Sequence[Planned] = (),
    names: Sequence[str] = (),
    against: str | None = None,
    short: bool = False,
    audience: Audience = NOBODY,
    elsewhere: Elsewhere | None = None,
    keep: bool = False,
    anew: bool = False,
) -> Ladder:
    """Verify and time rungs of a device's ladder on a network and some images: all, or those with
    `names`.

    A rung that cannot run, or computes something wrong, has a row that says so and is not timed.
    `own` are rungs in files of a user's: each has its place behind the rung that it changes.
    `guests` are rungs that are not on the ladder: they are timed with the others, unverified.
    `planned` have a row each at the end, proven on the network's layers with what they chose.
    With `memory` ALL each rung has a row for every memory plan, and the CPU's serial loops one.
    A `short` proof is of the network's own layers. Rungs are timed here, in turns, wherever they
    are proven. If proofs are to be `keep`t, those that this machine has are believed, unless all is
    to be proven `anew`.
    """
    wanted = [*names, against] if names and against else names
    every = _chosen(device, wanted)
    chosen = [each for each in every if each.label in names or _new(each, network, device)]
    ladder = with_own(chosen, own)
    if memory == ALL and device.is_gpu and (serial := rungs(CPU)[0]) not in ladder:
        ladder = [serial, *ladder]
    plans = [
        Row(each.rung, memory=each.plan.memory if memory == ALL else None, planned=each,
            place=len(ladder))
        for each in planned
    ]  # fmt: skip
    named = (*ladder, *guests, *(row.rung for row in plans))
    if against and not any(against in (each.name, each.label) for each in named):
        raise unknown("rung on this ladder", against, [each.name for each in named])
    size = min(batch, len(images))  # the batch that is timed is tried, too
    kept = None
    if keep and not short and elsewhere is None:  # of this machine, and whole
        kept = KeptProofs(network, size, anew)
    late: list[Rung] = []  # are looked at beside other things: to import a library takes seconds
    usable = device.kind == "cuda" and gpu_backend("cuda").missing(device) is None
    if usable and memory != ALL and not short and elsewhere is None:
        late = [rung for rung in ladder if rung.vendor and device_of(rung, device) == device]
    lookout = ThreadPoolExecutor(1, "vendors")
    look = partial(lookout.map, lambda rung: _missing(rung, device, memory), late)
    # At once if there may be nothing to prove; else when proofs have begun, which is more urgent.
    looked_at = look() if kept is not None and kept.any else None
    rows = [
        row for rung in (*ladder, *guests)
        for row in ([Row(rung)] if rung in late else _rows(rung, device, memory))
    ]  # fmt: skip
    able = list({row.rung.label: row.rung for row in rows if row.missing is None}.values())
    able = [rung for rung in able if rung not in guests]
    proven = {}

    def meanwhile() -> dict[str, str | None]:
        for row in (each for each in rows if each.rung not in late):
            if row.missing is None and device_of(row.rung, device).kind == "cuda":
                with suppress(DoesNotFit, MissingForm):  # told in its turn
                    begin_convolutions(row.rung, network, device, batch, _plan(row, memory))
        missing = look() if looked_at is None else looked_at
        return {rung.label: reason for rung, reason in zip(late, missing, strict=True)}

    for row in prove(able, device, network, size, short, progress, elsewhere, kept, meanwhile):
        proven[row.rung.label] = row
        audience.proven(row)
    rows = [
        replace(proven[row.rung.label], memory=row.memory)
        if row.missing is None and row.rung.label in proven else row
        for row in rows
    ]  # fmt: skip
    for row in plans:
        rows.append(_proven_plan(row, network, len(images), progress))
        audience.proven(rows[-1])
    contest = Contest(images, batch)
    for row in rows:
        if row.missing is None and (row.verdict is None or row.verdict.passed):
            progress(f"building {row.name}", 0, 1)
            if row.planned is not None:
                plan, used = row.planned.plan, row.planned.rungs
                contest.enter_plan(row.name, plan, used, network)
                continue
            on = device_of(row.rung, device)
            contest.enter(row.name, row.rung, network, on, _plan(row, memory))
    if not (description := contest.description(device)):
        there = [row for row in rows if device_of(row.rung, device) == device]
        raise TilewrightError(f"no rung can be timed: {_reasons(there) or 'there is none'}")
    seed, watch = secrets.randbits(32), Watch(device)
    contest.run(repeats, progress, audience.timed, seed, watch)
    conditions = watch.conditions()
    results = [replace(row, measured=contest.measured(row.name, network)) for row in rows]
    progress("measuring the device's peak", 0, 1)
    fastest = max((_executed_rate(row, network, len(images)) for row in results), default=0.0)
    known, problem = ceilings(device, description, at_least=fastest)
    notices = (problem,) if problem else ()
    doubt = 0.0 if device.kind == "cuda" else conditions.busy  # a GPU has its own processors
    return Ladder(
        description, known.flops, results, seed, conditions, notices, doubt, against, short
    )


def _proven_plan(row: Row, network: Network, images: int, progress: Progress) -> Row:
    assert row.planned is not None
    rungs, plan = list(row.planned.rungs.values()), row.planned.plan

    def tell(doing: str) -> None:
        progress(f"{row.name}: {doing}", 0, 1)

    return replace(row, verdict=prove_plan(rungs, network, plan, images, tell))


def _chosen(device: Device, names: Sequence[str]) -> list[Rung]:
    """The device's rungs in each of their precisions, or those that are named, in the ladder's
    order. On a GPU's ladder rungs of the CPU may be named, too: they are timed beside it.
    """
    known = [*rungs(device)] if not names or not device.is_gpu else [*rungs(CPU), *rungs(device)]
    every = [each.at(p.name) for each in known for p in each.precisions or (each.precision,)]
    every = list({each.label: each for each in every}.values())
    for name in names:
        if not any(name in (each.name, each.label) for each in every):
            raise not_among(every, device, name)
    return [each for each in every if not names or {each.name, each.label} & set(names)]


def _new(rung: Rung, network: Network, device: Device) -> bool:
    """Whether a rung's fast algorithm is chosen for any layer: else its row would be the direct
    sum's again."""
    if not rung.precisions or not isinstance(rung.precision.fast, tuple):
        return True
    if any(rung.supports(stage) for stage in network.stages):
        return False  # which the direct sum's row says
    on = device_of(rung, device)
    return any(
        rung.plan(on, stages, rung.precision) != rung.plan(on, stages, FLOAT32)
        for stages in rung.cut(network)
    )


def _rows(rung: Rung, device: Device, memory: str | None) -> list[Row]:
    """One for each memory plan that it is to be timed under, with what keeps it from that."""
    on = device_of(rung, device)
    if on != device:
        return [Row(rung, missing=_missing(rung, on, None), memory=HOST)]
    if memory != ALL:
        return [Row(rung, missing=_missing(rung, on, memory))]
    return [Row(rung, missing=_missing(rung, on, plan), memory=plan) for plan in rung.memories]


def _plan(row: Row, memory: str | None) -> str | None:
    """The memory plan that a row is timed under; None: the rung's own."""
    if row.memory == HOST:
        return None
    return row.memory if memory == ALL else memory


def _reasons(rows: Sequence[Row]) -> str:
    """Why each could not be timed; those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        why = str(row.missing or (row.verdict and row.verdict.fault))
        reasons.setdefault(why, []).append(row.name)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in reasons.items())


def with_own(ladder: Sequence[Rung], own: Sequence[Rung]) -> list[Rung]:
    """The ladder with rungs of a user's, each behind the one that it changes."""
    rungs = list(ladder)
    for rung in own:
        if same := next((each for each in rungs if each.label == rung.label), None):
            raise TilewrightError(
                f"{same.origin} and {rung.origin} are both named {rung.name!r}: names must differ"
            )
        place = next((i for i, each in enumerate(rungs) if each.vendor), len(rungs))
        for index, each in enumerate(rungs):
            if each.name == rung.against or (each.origin and each.against == rung.against):
                place = index + 1
        rungs.insert(place, rung)
    return rungs


def _executed_rate(row: Row, network: Network, images: int) -> float:
    """FLOP a second that a rung of our own surely did in float32; of others' nobody knows."""
    if (
        row.ranked is None
        or row.memory == HOST
        or row.rung.vendor
        or row.rung.precision.name != FLOAT32.name
    ):
        return 0.0
    return images * row.rung.executed_flops(network) / row.ranked.median


def _missing(rung: Rung, device: Device, memory: str | None) -> str | None:
    if memory is not None and memory not in rung.memories:
        return f"it cannot work with --memory {memory}"
    if reason := rung.missing(device):
        return reason
    try:
        rung.open_runtime(device, memory or rung.memories[0])
    except TilewrightError as error:  # before minutes of verifying
        return str(error)
    return None
