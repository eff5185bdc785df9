"""A short trial, its clock made up: the fastest is taken and kept, and not timed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tilewright
from tests.test_plan import NETWORK
from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.rungs.rung import Options, Rung
from tilewright.runtime.device import CPU, Device
from tilewright.tune import short
from tilewright.tune.device import OnDevice
from tilewright.tune.search import Candidate
from tilewright.tune.spans import Span

NEVER = float("inf")


def offers(*args: object) -> Iterator[Options]:
    yield from ({"kernels": [{"warps": warps}]} for warps in (4, 8, 16))


RUNG = replace(find("network"), devices=("cpu",), candidates=offers)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@dataclass
class Race:
    seconds: Sequence[float]
    batches: list[int] = field(default_factory=list)

    def __call__(
        self, network: Network, rung: Rung, device: Device, batch: int, some: Sequence[Candidate]
    ) -> Sequence[float]:
        self.batches.append(batch)
        return self.seconds


def warps(batch: int, race: Race, rung: Rung = RUNG) -> object:
    (kernel,) = short.by_trial(NETWORK, rung, CPU, batch, race)["kernels"]  # type: ignore[misc]
    return kernel["warps"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ((3.0, 2.0, 4.0), 8),
        ((3.0, 2.99, 4.0), 4),  # not faster by enough
        ((NEVER, 5.0, 4.0), 16),  # the planner's own cannot be launched
    ],
)
def test_the_fastest_is_taken_if_it_is_clearly_faster(
    seconds: tuple[float, ...], chosen: int
) -> None:
    assert warps(100, Race(seconds)) == chosen


def test_what_was_found_is_kept_for_batches_of_the_size() -> None:
    first, later = Race((3.0, 2.0, 4.0)), Race((1.0, 2.0, 4.0))
    assert [warps(batch, first) for batch in (100, 65, 128)] == [8, 8, 8]
    assert first.batches == [100]
    assert [warps(batch, later) for batch in (129, 64)] == [4, 4]
    assert warps(100, later, RUNG.at("fp16")) == 4
    assert later.batches == [129, 64, 100]


def test_another_generator_is_tried_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warps(1, Race((3.0, 2.0, 4.0))) == 8
    monkeypatch.setattr(short, "source", lambda *endings: b"another")
    assert warps(1, Race((3.0, 2.0, 1.0))) == 16


def test_nothing_is_kept_where_nothing_can_be_launched() -> None:
    for _ in range(2):
        with pytest.raises(TilewrightError, match="none of 3 ways"):
            warps(1, Race((NEVER, NEVER, NEVER)))


@dataclass
class Turns:
    """Three candidates whose times drift: the second is a little faster in every round."""

    name: str
    factor: float
    called: list[str]

    def seconds(self) -> float:
        self.called.append(self.name)
        return self.factor * (1 + len(self.called))


def test_all_take_turns_but_those_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    factors = {"4": 1.0, "8": 0.6, "16": 9.0, "32": None}

    def alone(here: OnDevice, span: Span, candidate: Candidate) -> Turns:
        (name,) = (str(each) for each in candidate.numbers.values())
        factor = factors[name]
        if factor is None:
            raise RuntimeError("too many resources requested for launch")
        return Turns(name, factor, called)

    monkeypatch.setattr(OnDevice, "alone", alone)
    monkeypatch.setattr(OnDevice, "ahead", lambda *given: called.append("ahead"))
    candidates = [Candidate.of("network", "fp32", {"warps": int(name)}) for name in factors]
    seconds = short.race_on_device(NETWORK, RUNG, CPU, 10, candidates)
    assert called[:4] == ["ahead", "4", "8", "16"]
    assert sorted(called[4:]) == ["4"] * short.ROUNDS + ["8"] * short.ROUNDS
    assert seconds[1] < seconds[0] < seconds[2] + 60 and seconds[3] == NEVER


def test_only_a_gpu_is_tried() -> None:
    with pytest.raises(TilewrightError, match="trial=True: on cpu nothing is timed"):
        tilewright.compile(NETWORK, trial=True)
