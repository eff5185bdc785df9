"""One submission: the proof of `kernel check`, then times in turns with a rung, as `kernel bench`.

What a student handed in is an outcome whatever it does; only what is wrong with this machine is
raised.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.judge.arena import Entry, Row
from tilewright.judge.bench import Bench, bench
from tilewright.judge.check import Checked, check
from tilewright.judge.submissions import Submission
from tilewright.measure.samples import Rounds, Sample
from tilewright.model.network import Network
from tilewright.results.benched import memory_share, peak_share
from tilewright.results.grade import Judged, Profile
from tilewright.rungs.own.expression import HeaderError
from tilewright.rungs.own.rung import read, rung_of
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.truth.verify import Verdict


@dataclass(frozen=True)
class Referee:
    """Judges alike whoever comes. `limit` is in seconds, for all of a submission's proof; `words`
    tells in full what was found of a file; `tell` hears what is being done."""

    network: Network
    dataset: Dataset
    device: Device
    batch: int
    baseline: Rung
    seed: int
    rounds: int | Rounds
    limit: float
    words: Callable[[Checked], str]
    trust: bool = False
    tell: Callable[[str], None] = lambda words: None

    def __call__(self, handed_in: Submission) -> Judged:
        with TemporaryDirectory(prefix="tilewright-grade-") as folder:
            path = Path(folder) / Path(handed_in.file).name
            path.write_bytes(handed_in.content)
            for name, content in handed_in.included.items():
                (path.parent / name).parent.mkdir(parents=True, exist_ok=True)
                (path.parent / name).write_bytes(content)
            judged = self._judged(path)
            gc.collect()  # a worker ends with the last who knows it, and some know each other
            # Where it was put to be judged is nobody's business.
            return structs.replace(judged, reason=judged.reason.replace(f"{folder}/", ""))

    def _judged(self, path: Path) -> Judged:
        self.tell("compiling")
        if (problem := self._elsewhere(path)) is not None:
            return Judged(outcome="refused", reason=problem)
        checked = check(
            path, self.device, [self.network], self.seed, trust=self.trust,
            progress=self._until(time.monotonic() + self.limit),
        )  # fmt: skip
        if not checked.passed:
            words = f"{_headline(checked)}\n\n{self.words(checked)}"
            return Judged(outcome=checked.outcome, reason=words.strip())
        rung = rung_of(read(path))
        if rung.precision.operand_unit > self.baseline.precision.operand_unit:
            return Judged(
                outcome="refused",
                reason=f"it is right in {rung.precision.name}, and all are compared in "
                f"{self.baseline.precision.name}, the class of {self.baseline.label}",
            )
        verdict = checked.verdict
        assert verdict is not None  # of a kernel that is right
        found = self._timed(rung, verdict)
        mine, other = found.rows
        if mine.refused is not None:
            return Judged(outcome="refused", reason=mine.refused)
        if other.refused is not None:
            raise TilewrightError(f"rung {self.baseline.label!r} itself: {other.refused}")
        return Judged(
            outcome="right",
            operations=_seconds(mine.warm),
            baseline=_seconds(other.warm),
            cold=_seconds(mine.cold),
            correct={str(size): share for size, share in mine.correct.items()},
            profile=self._profile(found, mine),
            worst_share_of_bound=verdict.worst,
        )

    def _profile(self, found: Bench, row: Row) -> dict[str, Profile]:
        made = {}
        for stage in self.network.stages:
            if (sample := row.warm.get(stage.name)) is not None:
                made[stage.name] = Profile(
                    flops=found.batch * stage.flops / sample.median,
                    share_of_peak=peak_share(found, row, [stage], sample.median),
                    share_of_memory=memory_share(found, row, [stage], sample.median),
                )
        return made

    def _elsewhere(self, path: Path) -> str | None:
        """Why a file is not for this device, if it is a kernel file at all."""
        try:
            devices = rung_of(read(path)).devices
        except HeaderError:
            return None  # which its check tells in full
        if self.device.kind in devices:
            return None
        return f"it runs on {' or '.join(devices)}, and all are judged on {self.device}"

    def _timed(self, rung: Rung, verdict: Verdict) -> Bench:
        entries = (Entry(rung, self.device, judged=True), Entry(self.baseline, self.device))
        return bench(
            entries, self.network, self.dataset, self.device, self.batch, self.rounds, self.trust,
            proof=lambda isolated: verdict,
            progress=lambda doing, done, of: self.tell(f"{doing}: {done} of {of}"),
        )  # fmt: skip

    def _until(self, deadline: float) -> Callable[[int], None]:
        def progress(trials: int) -> None:
            self.tell(f"proving: {trials} trials")
            if time.monotonic() > deadline:
                raise TilewrightError(f"its proof takes longer than {self.limit:g} s")

        return progress


def _headline(checked: Checked) -> str:
    """What is wrong, in one line that begins with the likeliest mistake."""
    if checked.diagnosis is not None:
        return f"{checked.diagnosis.words[0]}: {checked.diagnosis.headline}"
    return (checked.problem.splitlines() or [""])[0]


def _seconds(samples: Mapping[str, Sample]) -> dict[str, tuple[float, ...]]:
    return {name: sample.seconds for name, sample in samples.items()}
