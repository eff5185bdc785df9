"""The life of submissions, drawn: whatever people, workers and teachers do, in whatever order, the
store says what a plain model says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.classroom.made import KERNEL, NOW, TASK, right, store_with
from tests.examples import examples
from tilewright.classroom.store import Store

LOGINS = ("anna", "ben", "carla")
WORKERS = ("one", "two")


@dataclass
class Known:
    login: str
    state: str = "waiting"
    attempts: int = 0
    turn: int = 0
    worker: str | None = None
    verdicts: list[float] = field(default_factory=list)


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.store = store_with(Path(self.folder.name), *LOGINS)
        self.known: dict[int, Known] = {}
        self.turns = 0
        self.results = 0.0

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()

    def of_worker(self, worker: str) -> list[Known]:
        return [each for each in self.known.values() if each.worker == worker]

    @rule(login=st.sampled_from(LOGINS))
    def hand_in(self, login: str) -> None:
        number = self.store.hand_in(login, TASK, KERNEL, True, NOW)
        assert number == len(self.known) + 1
        self.known[number] = Known(login)

    @rule(worker=st.sampled_from(WORKERS))
    def take(self, worker: str) -> None:
        waiting = {number: each for number, each in self.known.items() if each.state == "waiting"}
        found = self.store.take(worker, {"opencl"})
        assert (found is None) == (not waiting)
        if found is None:
            return
        # Of those who wait: fewest at work, then served longest ago, then the oldest.
        assert found.number == min(waiting, key=lambda number: self.before(number))
        each, self.turns = self.known[found.number], self.turns + 1
        each.state, each.worker = "judging", worker
        each.attempts, each.turn = each.attempts + 1, self.turns

    def before(self, number: int) -> tuple[int, int, int]:
        theirs = [each for each in self.known.values() if each.login == self.known[number].login]
        running = sum(each.state == "judging" for each in theirs)
        return running, max(each.turn for each in theirs), number

    @precondition(lambda self: self.known)
    @rule(worker=st.sampled_from(WORKERS), data=st.data())
    def finish(self, worker: str, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.known)))
        each, self.results = self.known[number], self.results + 1
        mine = each.state == "judging" and each.worker == worker
        assert self.store.progress(number, worker, "timing") == mine
        assert self.store.finish(number, worker, right(self.results)) == mine
        if mine:
            each.state, each.worker = "done", None
            each.verdicts.append(self.results)

    @rule(worker=st.sampled_from(WORKERS), counts=st.booleans())
    def lose(self, worker: str, counts: bool) -> None:
        self.store.release(worker, "it died", counts)
        for each in self.of_worker(worker):
            each.worker = None
            each.attempts -= not counts
            each.state = "waiting" if each.attempts < 2 else "done"
            if each.state == "done":
                each.verdicts.append(0.0)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def rerun(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.known)))
        self.store.rerun(number, "tina")
        each = self.known[number]
        each.state, each.worker, each.attempts, each.verdicts = "waiting", None, 0, []

    @rule()
    def start_again(self) -> None:
        """Another server, of the same file; what the workers had is released as if they died."""
        self.store.close()
        self.store = Store(self.store.path)
        self.store.release_all("the server ended")
        for worker in WORKERS:
            self.lose(worker, True)

    @invariant()
    def all_is_as_it_is_known(self) -> None:
        found = {each.number: each for each in self.store.of_task("first")}
        assert found.keys() == self.known.keys()
        for number, each in self.known.items():
            kept = found[number]
            assert (kept.login, kept.state, kept.attempts, kept.worker) == (
                each.login, each.state, each.attempts, each.worker,
            )  # fmt: skip
            assert len(each.verdicts) == (kept.judged is not None)
            if kept.judged is not None and each.verdicts[0]:
                assert kept.judged == right(each.verdicts[0])
        waiting = [each.number for each in self.store.waiting()]
        assert sorted(waiting) == [n for n, each in self.known.items() if each.state == "waiting"]


TestLife = Life.TestCase
TestLife.settings = examples(8, stateful_step_count=20)
