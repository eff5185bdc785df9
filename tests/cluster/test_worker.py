"""What a worker makes of parts, and what becomes of its answers, without a cluster."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.made import IMAGES, LABELS, NETWORK, REQUEST
from tilewright import job
from tilewright.cluster.gather import Gathering
from tilewright.cluster.ledger import TRIES, Ledger
from tilewright.cluster.worker import ANSWER, PART, Problem, Worker
from tilewright.data.parts import list_data
from tilewright.errors import TilewrightError
from tilewright.results.merged import added, finished
from tilewright.results.run import Phase, record

CUT = list_data(REQUEST.data, NETWORK.input.shape, None).cut(REQUEST.batch, 1)


@pytest.fixture(scope="module")
def answers():
    worker = Worker(REQUEST, 0)
    return [worker.answer(part) for part in CUT.all]


@pytest.fixture(scope="module")
def whole():
    return job.run(REQUEST)


def test_answers_are_those_of_one_process(answers, whole):
    assert len(answers) > 5
    gathering = Gathering(CUT)
    for answer in answers:
        gathering.take(answer)
    found = gathering.predictions
    np.testing.assert_array_equal(found.predicted, whole.predicted)
    np.testing.assert_array_equal(found.labels, LABELS)
    np.testing.assert_array_equal(found.values, whole.outputs.max(1))
    assert found.probabilities
    assert gathering.plan == whole.plan


def test_the_parts_tables_add_up_to_those_of_the_whole(answers, whole):
    total = answers[0].record
    for answer in answers[1:]:
        total = added(total, answer.record)
    one = record(whole)
    assert (total.images, total.correct, total.accuracy) == (230, one.correct, one.accuracy)
    for mine, theirs in zip(total.layers, one.layers, strict=True):
        assert (mine.name, mine.kind, mine.flop) == (theirs.name, theirs.kind, theirs.flop)
    assert total.forward_seconds == pytest.approx(
        sum(each.record.forward_seconds for each in answers)
    )
    assert total.remainder_seconds == pytest.approx(
        total.forward_seconds - sum(each.seconds for each in total.layers), abs=1e-6
    )
    phases = [Phase(name="a", seconds=1.0), Phase(name="b", seconds=4.0)]
    made = finished(total, "what was read", phases, "b", [])
    assert (made.data, made.images_per_second, made.total_seconds) == ("what was read", 57.5, 5.0)


@given(st.permutations(range(len(CUT.all))), st.data())
def test_order_does_not_matter_and_no_answer_counts_twice(answers, order, data):
    gathering = Gathering(CUT)
    for index in order[:-1]:
        gathering.take(answers[index])
        again = data.draw(st.sampled_from(order[: order.index(index) + 1]))
        with pytest.raises(TilewrightError, match="internal error"):
            gathering.take(answers[again])
        assert gathering.done < CUT.images
    with pytest.raises(TilewrightError, match="nothing came of"):
        _ = gathering.predictions
    gathering.take(answers[order[-1]])
    np.testing.assert_array_equal(gathering.predictions.labels, LABELS)
    assert gathering.record.correct == (gathering.predictions.predicted == LABELS).sum()


def test_seconds_of_a_worker_add_up(answers):
    clock = iter([10.0, 20.0, 50.0]).__next__
    gathering = Gathering(CUT, clock)
    one, other = answers[:2]
    times = replace(one.times, born=100.0, began=101.0, ended=105.0, starting=1.0, loading=0.5,
                    computing=2.5)  # fmt: skip
    gathering.take(replace(one, times=times))
    gathering.take(replace(other, times=replace(times, began=107.0, ended=110.0, starting=0.0)))
    (worker,) = gathering.worker_times(())
    assert worker.images == len(one.predicted) + len(other.predicted)
    assert (worker.parts, worker.lost) == (2, False)
    assert (worker.starting_seconds, worker.loading_seconds) == (1.0, 1.0)
    assert worker.computing_seconds == 5.0
    # Before the first, between the two, and from the last until all others were done.
    assert worker.waiting_seconds == 1.0 + 2.0 + 30.0


def test_who_died_before_an_answer_is_in_the_table(answers):
    gathering = Gathering(CUT)
    gathering.take(answers[0])
    lost = {each.name: each.images for each in gathering.worker_times({"b:2"}) if each.lost}
    assert lost == {"b:2": 0}


def test_what_is_wrong_with_a_part_is_one_line_that_names_its_images(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, images=IMAGES, labels=np.full(230, 7))
    wrong = list_data(path, NETWORK.input.shape, None).cut(8, 1).all[2]
    rows = Worker(REQUEST, 0)({PART: np.array([pickle.dumps(wrong)], object)})
    (problem,) = map(pickle.loads, rows[ANSWER])
    assert isinstance(problem, Problem)
    first, last = wrong.first, wrong.first + wrong.images - 1
    assert problem.words.startswith(f"images {first} to {last}: {path}: label 7 of image 0 is out")


def test_a_part_that_kills_its_workers_is_given_up():
    ledger = Ledger()
    for number in range(TRIES):
        assert ledger.begin(16, f"a:{number}") == number + 1
    ledger.begin(24, "b:1")
    assert ledger.lost() == {f"a:{number}" for number in range(TRIES - 1)}
    with pytest.raises(TilewrightError, match="4 workers ended in the middle"):
        Worker(REQUEST, 0, lambda first, worker: ledger.begin(16, worker)).answer(CUT.all[0])
