"""Two records compared: more than noise or not, and what else is different."""

from __future__ import annotations

import numpy as np
import pytest
from rich.console import Console

from tests.results import made
from tilewright.errors import TilewrightError
from tilewright.results.changes import compare
from tilewright.results.record import Gpu
from tilewright.views import history as view

DOUBLE = tuple(2 * each for each in made.TIMES)
LATER = made.environment(date="2026-11-16T08:00:00+00:00")


def verdicts(before, after):
    return {row.name: row.verdict for row in compare(before, after).rows}


def printed(before, after):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for part in view.changes((3, 8), compare(before, after)):
        console.print(part)
    return console.export_text()


def test_each_rung_has_its_verdict():
    before = made.ladder_record({"serial": made.TIMES, "fused": DOUBLE, "old": made.TIMES})
    after = made.ladder_record({"serial": made.TIMES[::-1], "fused": made.TIMES, "new": DOUBLE})
    assert verdicts(before, after) == {
        "serial": "no more than noise", "fused": "faster", "old": "only in A", "new": "only in B",
    }  # fmt: skip
    assert verdicts(after, before)["fused"] == "slower"


def test_why_a_rung_is_missing_is_said():
    wrong = made.rung_record("fused", made.TIMES, network=None, operations={})
    absent = made.rung_record("torch", made.TIMES, network=None, missing="PyTorch is not here")
    before = made.ladder_record({"fused": made.TIMES, "torch": made.TIMES})
    after = made.ladder_record(rows=(wrong, absent))
    assert verdicts(before, after) == {
        "fused": "only in A; B: it computes something wrong",
        "torch": "only in A; B: PyTorch is not here",
    }
    assert verdicts(after, before)["torch"] == "only in B; A: PyTorch is not here"
    assert max(map(len, printed(before, after).splitlines())) <= 100


def test_noise_is_seldom_taken_for_more():
    generator = np.random.default_rng(3)
    names = [str(index) for index in range(100)]
    before, after = (
        made.ladder_record({name: tuple(generator.lognormal(-5, 0.1, 9)) for name in names})
        for _ in range(2)
    )
    found = list(verdicts(before, after).values())
    assert found.count("no more than noise") >= 90


@pytest.mark.parametrize(("counts", "words"), [((5, 9), "5 and 9 samples"), ((1, 1), "one sample")])
def test_few_samples_tell_nothing(counts, words):
    before, after = (
        made.ladder_record({"fused": tuple(factor * each for each in made.TIMES[:count])})
        for count, factor in zip(counts, (1, 10), strict=True)
    )
    assert verdicts(before, after)["fused"].startswith(f"cannot be told: {words}")


def test_runs_have_one_sample_of_the_whole_and_of_each_layer():
    found = compare(made.run_record(), made.run_record(forward_seconds=0.02))
    assert [row.name for row in found.rows] == ["forward", "conv1"]
    assert found.rows[0].times.value == pytest.approx(0.5)
    assert found.rows[0].verdict == "cannot be told: one sample each"


def test_times_are_of_an_image():
    """Twice as many images in twice the time are no change."""
    found = compare(made.run_record(), made.run_record(images=200, forward_seconds=0.02))
    assert found.rows[0].times.value == pytest.approx(1)
    assert "images: A 100, B 200" in found.differences


def test_a_busy_machine_tells_less():
    slower = {"fused": tuple(1.3 * each for each in made.TIMES)}
    before = made.ladder_record({"fused": made.TIMES})
    assert verdicts(before, made.ladder_record(slower))["fused"] == "slower"
    assert verdicts(before, made.ladder_record(slower, doubt=0.5))["fused"] == "no more than noise"


def test_different_machines_and_networks_are_said_plainly():
    other = made.environment(
        date="2026-11-16T08:00:00+00:00", cpu="another CPU", libraries={"numpy": "2.6.0"},
        gpus=(Gpu("a GPU", "590.2", "143771 MiB"),),
    )  # fmt: skip
    text = printed(made.ladder_record(), made.ladder_record(network="large", environment=other))
    assert "A: 3, ladder of small on cpu, 2026-11-15 12:11 UTC, a CPU, 2 cores" in text
    assert "B: 8, ladder of large on cpu, 2026-11-16 08:00 UTC, another CPU, 2 cores" in text
    assert "different networks" in text
    assert "different machines" in text
    assert "numpy: A 2.5.2, B 2.6.0" in text
    assert "driver of a GPU: A 580.1, B 590.2" in text
    assert max(map(len, text.splitlines())) <= 100


def test_what_is_the_same_is_not_mentioned():
    text = printed(made.ladder_record(), made.ladder_record(environment=LATER))
    assert "different" not in text
    assert "Not the same" not in text
    assert "no more than noise" in text


def test_different_verbs_are_not_compared():
    with pytest.raises(TilewrightError, match="cannot compare a run with a "):
        compare(made.run_record(), made.ladder_record())
