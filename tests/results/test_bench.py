"""The record of a contest, made by hand: its place in lists and comparisons."""

from __future__ import annotations

import pytest

from tests.results import made
from tilewright.results import document
from tilewright.results.bench import BenchRecord, ConvolutionTimes, KernelRecord
from tilewright.results.changes import compare


def kernel(name: str, factor: float = 1.0, **changes: object) -> KernelRecord:
    times = tuple(factor * each for each in made.TIMES)
    one = ConvolutionTimes(warm_seconds=times, cold_seconds=times, fingerprints=("a",))
    facts = {
        "name": name, "judged": True, "library": False, "device": "opencl", "precision": "fp32",
        "refused": None, "rank": 1, "worst_share_of_bound": 0.5, "trials": 9, "seed": 1,
        "share_of_library": None, "share_of_peak": 0.1, "share_of_memory": None,
        "correct": {"100": 0.75},
        "convolutions": {"conv1": one, "conv2": one},
    }  # fmt: skip
    return KernelRecord(**(facts | changes))


REFUSED = {"rank": None, "refused": "it wrote outside of its output", "convolutions": {}}


def bench(*kernels: KernelRecord, **changes: object) -> BenchRecord:
    facts = {
        "network": "small", "device": "opencl", "device_name": "a GPU",
        "environment": made.ENVIRONMENT, "weights": "random weights", "data": "random pixels",
        "images": 1000, "batch": 10, "order_seed": 1, "overhead_seconds": 0.0, "peak_flops": 1e12,
        "peak_bytes": None, "notices": (), "conditions": made.ladder_record().conditions,
        "kernels": kernels, "unreadable": {},
    }  # fmt: skip
    return BenchRecord(**(facts | changes))


def test_it_is_the_same_after_json():
    some = bench(kernel("mine"), kernel("broken", **REFUSED), unreadable={"x.cl": "no header"})
    assert document.decode(document.line(some), BenchRecord) == some


def test_the_headline_is_the_best_of_the_judged():
    rival = kernel("tuned", 0.5, judged=False)
    assert bench(kernel("mine", rank=2), rival).headline == "mine: 2 of 2"
    assert bench(kernel("broken", **REFUSED), rival).headline == "every kernel was refused"


def test_all_convolutions_of_an_image_are_compared():
    before, after = bench(kernel("mine")), bench(kernel("mine", 0.5), kernel("new"))
    assert before.timings["mine"].seconds[0] == pytest.approx(2 * made.TIMES[0] / 10)
    verdicts = {row.name: row.verdict for row in compare(before, after).rows}
    assert verdicts == {"mine": "faster", "new": "only in B"}
    refused = compare(before, bench(kernel("mine", **REFUSED))).rows[0]
    assert refused.verdict == "only in A; B: it wrote outside of its output"
    assert bench(kernel("broken", **REFUSED)).rungs == ()


def test_others_work_is_no_gpus_trouble():
    busy = document.plain(made.ladder_record().conditions) | {"others_share": 0.4}
    conditions = type(made.ladder_record().conditions)(**busy)
    assert bench(kernel("mine"), conditions=conditions).disturbance == 0.4
    assert bench(kernel("mine"), conditions=conditions, device="cuda:1").disturbance == 0.0
    assert bench(kernel("mine")).disturbance == 0.0
