"""What there is to choose: the parts that rungs cut a network into, and each part's candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.model.network import Network, Stages
from tilewright.precision import FLOAT32
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.tune.search import Candidate


@dataclass(frozen=True)
class Span:
    """Consecutive layers that some rungs compute in one step.

    `own` is what each of these rungs chooses itself, `candidates` are all that may be tried, the
    most promising of each rung first. A span that computes nothing has one candidate and no time.
    """

    stages: Stages
    own: tuple[Candidate, ...]
    candidates: tuple[Candidate, ...]

    @property
    def first(self) -> int:
        return self.stages[0].index

    @property
    def end(self) -> int:
        return self.stages[-1].index + 1

    @property
    def name(self) -> str:
        names = [stage.name for stage in self.stages]
        return names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    @property
    def computes(self) -> bool:
        return any(stage.layer.computes for stage in self.stages)

    @property
    def fused(self) -> bool:
        return len(self.stages) > 1


def spans(network: Network, rungs: Sequence[Rung], device: Device) -> list[Span]:
    """All parts that any of the rungs cuts the network into, in the order of their layers."""
    users: dict[Stages, list[Rung]] = {}
    for rung in rungs:
        for stages in rung.cut(network):
            users.setdefault(tuple(stages), []).append(rung)
    found = [_span(stages, able, device) for stages, able in users.items()]
    return sorted((span for span in found if span.own), key=lambda each: (each.first, -each.end))


def shared(stages: Stages, device: Device) -> bool:
    """Whether all rungs of a device compute a layer alike: on GPUs, all but convolutions."""
    return device.is_gpu and len(stages) == 1 and stages[0].kind != "conv"


def _span(stages: Stages, rungs: Sequence[Rung], device: Device) -> Span:
    own: list[Candidate] = []
    others: list[Iterator[Candidate]] = []
    for rung in rungs:
        if any(map(rung.supports, stages)):
            continue
        try:
            found = list(_candidates(rung, stages, device))
        except DoesNotFit:
            continue
        own.append(found[0])
        others.append(iter(found[1:]))
        if shared(stages, device):
            break
    return Span(stages, tuple(own), (*own, *_in_turns(others)))


def _candidates(rung: Rung, stages: Stages, device: Device) -> Iterator[Candidate]:
    if not any(stage.layer.computes for stage in stages):
        yield Candidate(rung.name, rung.precision.name)
        return
    for options in rung.choices(device, stages):
        yield Candidate.of(rung.name, rung.precision.name, options)


def _in_turns(several: list[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The first of each, the second of each, and so on."""
    while several:
        for each in several[:]:
            following = next(each, None)
            if following is None:
                several.remove(each)
            else:
                yield following


def taking_part(rungs: Sequence[Rung], device: Device, precision: str | None) -> list[Rung]:
    """Rungs in a precision, float32 if none is named, and those of float32 without a choice.

    None is taken that computes in less. Only rungs of one runtime can be in one plan, so that
    libraries' are left out. An error if nothing is left.
    """
    wanted = precision or FLOAT32.name
    found, reasons = [], []
    for rung in rungs:
        offered = [each.name for each in rung.precisions or (rung.precision,)]
        if rung.vendor:
            reasons.append(f"{rung.name}: has a runtime of its own, and a plan runs on one")
        elif reason := rung.missing(device):
            reasons.append(f"{rung.name}: {reason}")
        elif wanted in offered:
            found.append(rung.at(wanted))
        elif offered == [FLOAT32.name]:
            found.append(rung)  # more than is asked for
        else:
            reasons.append(f"{rung.name}: computes in {' or '.join(offered)}, not in {wanted}")
    if not found:
        raise TilewrightError(f"nothing to tune on {device}: {'; '.join(dict.fromkeys(reasons))}")
    return found
