"""Collecting a report: which parts there are, what is kept, what is left out."""

from __future__ import annotations

import json
import shlex
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from tests.profiling.made import CEILINGS
from tests.results.made import TIMES, ladder_record, run_record, rung_record
from tests.views.report.made import ladder as made_ladder
from tilewright import environment, save
from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample
from tilewright.model.load import describe
from tilewright.profiling import session
from tilewright.reporting import asked as asking
from tilewright.reporting import collect as collecting
from tilewright.reporting import measure
from tilewright.reporting.collect import collect
from tilewright.reporting.parts import Parts
from tilewright.reporting.wish import Wish
from tilewright.results.page import AnswersRecord, PlanRecord, TimelineRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import timing
from tilewright.results.run import RunRecord
from tilewright.runtime.device import CUDA
from tilewright.truth.trials import random_parameters

LAYERS = [
    {"type": "convolution", "filters": 2, "kernel": 3}, {"type": "relu"},
    {"type": "fully_connected", "outputs": 10}, {"type": "softmax"},
]  # fmt: skip


def silent(*now):
    pass


@pytest.fixture
def net(tmp_path):
    """A small network with weights, in a file."""
    path = tmp_path / "small.json"
    path.write_text(json.dumps({"name": "small", "input": {"shape": [1, 6, 6]}, "layers": LAYERS}))
    network = describe(str(path))
    parameters = random_parameters(network, np.random.default_rng(1))
    save(network.with_parameters(parameters), tmp_path / "small.safetensors")
    return str(tmp_path / "small.safetensors")


@pytest.fixture
def here(monkeypatch):
    """Parts are made in this process, and ladders by hand; what was made is listed."""
    made = []

    def ladder(wish, tell, progress):
        made.append("ladder")
        return ladder_record({"im2col": (0.01,) * 9, "fused": (0.02,) * 9})

    def elsewhere(function, progress, **given):
        made.append(f"{function.__name__} {given['label']}")
        return function(**given, progress=progress)

    monkeypatch.setattr(collecting, "_ladder", ladder)
    monkeypatch.setattr(asking, "elsewhere", elsewhere)
    monkeypatch.setattr(session, "ceilings", lambda *given: (CEILINGS, None))
    monkeypatch.setattr(measure, "measured_again", lambda profile: profile)
    return made


def test_a_small_network_from_end_to_end(here, net, tmp_path):
    parts = Parts(tmp_path / "parts")
    records = collect([Wish(net, images=4, batch=2)], parts, silent)
    assert parts.problems == {}
    kinds = [type(record) for record in records]
    for kind, count in ((RunRecord, 2), (PlanRecord, 2), (ProfileRecord, 2), (TimelineRecord, 1),
                        (AnswersRecord, 1)):  # fmt: skip
        assert kinds.count(kind) == count, kind
    (answers,) = (each for each in records if isinstance(each, AnswersRecord))
    assert answers.classes[0] == "T-shirt/top"
    assert answers.images == 1000
    assert np.sum(answers.confusion) == 1000
    runs = [each for each in records if isinstance(each, RunRecord)]
    assert {run.images for run in runs} == {4}
    for record in records[1:]:
        command = shlex.join(record.environment.command)
        assert f"--net {net} --data fashion-mnist-sample" in command
    assert collect([Wish(net, images=4, batch=2)], parts, silent) == records
    assert len(here) == 6  # of the first time
    parts.remove()
    assert not parts.folder.exists()


def test_what_was_stopped_goes_on_where_it_was(here, net, tmp_path, monkeypatch):
    wish, parts = Wish(net, images=2), Parts(tmp_path / "parts")

    def going(function, progress, **given):
        here.append(f"{function.__name__} {given['label']}")
        return [run_record()]

    def stopping(function, progress, **given):
        if function.__name__ == "profile":
            raise KeyboardInterrupt
        return going(function, progress, **given)

    monkeypatch.setattr(asking, "elsewhere", stopping)
    with pytest.raises(KeyboardInterrupt):
        collect([wish], parts, silent)
    before = list(here)
    assert before == ["ladder", "run im2col", "run fused", "answered im2col"]
    assert all(json.loads(path.read_text()) for path in parts.folder.iterdir())
    monkeypatch.setattr(asking, "elsewhere", going)
    collect([wish], parts, silent)
    assert here[len(before) :] == ["profile im2col", "profile fused"]


def test_what_cannot_be_had_is_named_and_no_end(here, net, tmp_path, monkeypatch):
    def failing(function, progress, **given):
        raise TilewrightError(f"{given['label']} is on holiday")

    monkeypatch.setattr(asking, "elsewhere", failing)
    parts = Parts(tmp_path / "parts")
    (ladder,) = collect([Wish(net, images=2)], parts, silent)
    assert ladder.verb() == "ladder"
    assert parts.problems[f"{net} on cpu: run fused, 2 images"] == "fused is on holiday"


def test_without_weights_nothing_is_begun(tmp_path, monkeypatch):
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps({"name": "bare", "input": {"shape": [1, 5, 5]}, "layers": LAYERS}))
    monkeypatch.setattr(collecting, "_ladder", lambda *given: pytest.fail("it measures"))
    with pytest.raises(TilewrightError, match="network 'bare' has no weights, and a report runs"):
        collect([Wish(net=str(bare))], Parts(tmp_path / "parts"), silent)


def test_nothing_found_is_kept_as_nothing(tmp_path):
    parts = Parts(tmp_path / "parts")
    parts.put(Wish(), "kernels", [])
    assert parts.get(Wish(), "kernels") == ()


@pytest.fixture
def on_cuda(monkeypatch):
    """What would be asked of a GPU."""
    asked = []
    together = threading.Barrier(2, timeout=20)

    def elsewhere(function, progress, **given):
        memory, wish = given.get("memory"), given["wish"]
        words = [function.__name__, str(wish.device), given["label"], given.get("images"), memory]
        words += [name for name in ("counted", "begun") if given.get(name)]
        asked.append(" ".join(str(word) for word in words if word is not None))
        if function is measure.kernels and given["label"] in ("direct", "shared"):
            together.wait()  # passes when both are at work
        return [run_record()]

    @contextmanager
    def started_ahead():
        asked.append("ahead")
        yield
        asked.append("no more ahead")

    monkeypatch.setattr(environment, "cpu_cores", lambda: 4)
    monkeypatch.setattr(collecting, "started_ahead", started_ahead)
    monkeypatch.setattr(asking, "elsewhere", elsewhere)
    monkeypatch.setattr(collecting, "_ladder", lambda *given: made_ladder())
    monkeypatch.setattr(asking, "on_the_cpu", lambda: ["serial", "torch"])
    return asked


def test_a_gpu_has_kernels_and_memory_plans(on_cuda, tmp_path):
    collect([Wish(images=10, device=CUDA)], Parts(tmp_path / "parts"), silent)
    for words in ("run cuda direct 10", "kernels cuda shared", "profile cuda torch",
                  "profile cuda direct managed", "profile cuda direct streamed"):  # fmt: skip
        assert words in on_cuda
    assert "kernels cuda torch" not in on_cuda
    assert "profile cuda shared managed" not in on_cuda
    # Kernels are no measurement, and were asked for at once: after all that was timed, before what
    # is recorded.
    first = [words.split()[0] for words in on_cuda if words.split()[0] != "no"]
    assert list(dict.fromkeys(first)) == ["ahead", "run", "answered", "kernels", "profile"]
    assert first == sorted(first, key=list(dict.fromkeys(first)).index)


def test_counters_are_read_of_rungs_of_our_own_where_they_are_asked_for(on_cuda, tmp_path):
    collect([Wish(images=10, device=CUDA, counters=True)], Parts(tmp_path / "parts"), silent)
    counted = [words for words in on_cuda if words.endswith("counted")]
    assert counted == [f"profile cuda {name} counted" for name in ("direct", "shared", "step2")]


def test_processes_are_started_ahead_where_cores_are_free(on_cuda, tmp_path, monkeypatch):
    wish = Wish(images=100, device=CUDA, data="drawn", milestone=True)
    collect([wish], Parts(tmp_path / "parts"), silent)
    among = on_cuda[on_cuda.index("ahead") : on_cuda.index("no more ahead")]
    assert any("cuda" in words for words in among)
    assert not any("cpu" in words for words in among)  # there it would be in the way
    on_cuda.clear()
    monkeypatch.setattr(environment, "cpu_cores", lambda: 2)
    collect([wish], Parts(tmp_path / "others"), silent)
    assert "run cuda direct 100" in on_cuda
    assert "ahead" not in on_cuda


def test_a_milestone_has_the_courses_sizes_and_the_cpu_beside(on_cuda, tmp_path):
    wish = Wish(images=100, device=CUDA, data="drawn", milestone=True)
    collect([wish], Parts(tmp_path / "parts"), silent)
    for size in (100, 1000, 10_000):
        for where in ("cuda direct", "cuda torch", "cpu serial", "cpu torch"):
            assert f"run {where} {size}" in on_cuda
    assert not any(words.startswith("answered") for words in on_cuda)  # drawn: nobody knows


def test_runs_of_minutes_are_left_out_and_named(on_cuda, tmp_path, monkeypatch):
    slow = ladder_record({"direct": (0.2,) * 9, "shared": (70.0,) * 9})  # seconds for 100 images
    monkeypatch.setattr(collecting, "_ladder", lambda *given: slow)
    told = []
    parts = Parts(tmp_path / "parts", told.append)
    collect([Wish(images=100, device=CUDA, data="drawn", milestone=True)], parts, silent)
    assert "run cuda direct 10000" in on_cuda
    assert "run cuda shared 100" in on_cuda  # as many as were asked for
    assert "run cuda shared 1000" not in on_cuda
    why = parts.problems["ece408 on cuda: run shared, 1,000 images"]
    assert why.startswith("would take about 12 min: tilewright run --rung shared --net ece408")
    assert "17 to go, about 12 min" in told[1]  # before any of them


def test_the_cpu_beside_is_judged_by_its_smaller_runs(on_cuda, tmp_path, monkeypatch):
    def elsewhere(function, progress, **given):
        on_cuda.append(f"{given['wish'].device} {given['label']} {given.get('images')}")
        return [run_record(device="cpu", label=given["label"], images_per_second=20.0)]

    monkeypatch.setattr(asking, "elsewhere", elsewhere)
    parts = Parts(tmp_path / "parts")
    collect([Wish(images=100, device=CUDA, data="drawn", milestone=True)], parts, silent)
    assert "cpu serial 1000" in on_cuda  # 50 s
    assert "cpu serial 10000" not in on_cuda
    assert parts.problems["ece408 on cpu: run serial, 10,000 images"].startswith("would take")
    assert not parts.ahead


def test_a_milestone_has_the_calls_of_whole_programs(on_cuda, tmp_path):
    wish = Wish(images=100, device=CUDA, data="drawn", milestone=True)
    collect([wish], Parts(tmp_path / "parts"), silent)
    begun = [words for words in on_cuda if words.endswith("begun")]
    assert begun == ["profile cuda direct begun", "profile cuda torch begun"]


def test_the_loops_beside_a_gpu_are_known_to_take_long(on_cuda, tmp_path, monkeypatch):
    """Said before, not when the last of them has begun; what will be left out is not waited for."""
    of_ece408 = replace(made_ladder(), flop_an_image=29_091_200)
    monkeypatch.setattr(collecting, "_ladder", lambda *given: of_ece408)
    expected, parts = {}, Parts(tmp_path / "parts")
    monkeypatch.setattr(parts, "announce", lambda: expected.update(parts.ahead))
    collect([Wish(images=100, device=CUDA, data="drawn", milestone=True)], parts, silent)
    loops = {name: each.seconds for name, each in expected.items() if "serial" in name}
    few, many = (loops[f"ece408 on cpu: run serial, {n} images"] for n in ("100", "1,000"))
    assert many > few + 10 and len(loops) == 2
    assert expected["ece408 on cuda: run direct, 100 images"].seconds < few


def test_the_fastest_is_ranked_by_the_device():
    slow, fast = (rung_record(name, (0.01,) * 9) for name in ("slow", "fast"))
    times = [timing(Sample(tuple(t * k for t in TIMES)), 100) for k in (0.5, 0.1)]
    rows = [replace(row, device_time=time) for row, time in zip((slow, fast), times, strict=True)]
    assert asking.best(ladder_record(rows=tuple(rows))) == "fast"


def test_the_same_network_with_other_weights_is_told_apart(here, net, tmp_path, monkeypatch):
    """As the course of 2017 had it: a high and a low model."""
    low = tmp_path / "low.safetensors"
    low.write_bytes(Path(net).read_bytes())
    monkeypatch.setattr(asking, "elsewhere", lambda *given, **named: [run_record()])
    wishes = [Wish(each, images=2) for each in (net, str(low))]
    records = collect(wishes, Parts(tmp_path / "parts"), silent)
    assert list(dict.fromkeys(record.network for record in records)) == [
        "small (small)", "small (low)"
    ]  # fmt: skip
