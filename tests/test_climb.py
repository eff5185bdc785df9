from __future__ import annotations

from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.profiling.made import CEILINGS
from tests.results.made import ENVIRONMENT
from tests.rungs.own.test_rung import KERNELS, needs_opencl
from tilewright import climb, contest
from tilewright.climb import proofs
from tilewright.contest import Measured
from tilewright.errors import TilewrightError
from tilewright.judge import WorkerStopped
from tilewright.measure.samples import Sample, interleave
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.precision import FLOAT32, FP16, TF32
from tilewright.results.climbed import record
from tilewright.rungs import choose, find, rungs
from tilewright.rungs.own import load
from tilewright.runtime.device import CPU, CUDA, OPENCL, Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.evidence import Fault
from tilewright.truth.trials import random_parameters
from tilewright.truth.verify import Verdict
from tilewright.views import ladder as view
from tilewright.views import live


def notes(ladder, subject):
    """What is said below the tables."""
    made = record(ladder, subject, CPU, 1, None, ENVIRONMENT)
    return "\n".join(part for part in view.tables(made) if isinstance(part, str))


@pytest.fixture
def trusting(monkeypatch):
    """Every rung is taken for right: verification has tests of its own, and takes its time."""
    verdict = Verdict(seed=1, trials=1, outputs=1, worst=0.0, fault=None)
    monkeypatch.setattr(proofs, "verify", lambda *given, **more: verdict)
    monkeypatch.setattr(climb, "ceilings", lambda *given, at_least: (CEILINGS, None))


@pytest.fixture
def quick(monkeypatch):
    """No pauses: these tests look at the bookkeeping, not at the figures."""
    monkeypatch.setattr(
        contest, "interleave", lambda *args, **more: interleave(*args, **more, sleep=lambda s: None)
    )


def test_every_rung_has_a_row_and_a_sample_for_each_repeat(quick, trusting):
    subject = climb.prepare("cifar10", None, None, images=3)
    assert subject.dataset.source.startswith("drawn pictures")
    seen = []
    ladder = climb.climb(
        subject.network, subject.dataset.images, CPU, batch=2, repeats=2,
        progress=lambda *now: seen.append(now),
    )  # fmt: skip
    assert [row.rung.name for row in ladder.rows] == [rung.name for rung in rungs(CPU)]
    for row in ladder.rows:
        if row.missing:
            continue
        assert row.verdict.passed
        assert len(row.network.seconds) == 2
        assert list(row.measured.operations) == ["conv1", "conv2", "conv3"]
        assert all(len(sample.seconds) == 2 for sample in row.measured.operations.values())
        assert row.measured.operations_mark == {"onnxruntime": "*", "fused": "+"}.get(
            row.rung.name, ""
        )
        np.testing.assert_array_equal(row.measured.predicted, ladder.rows[0].measured.predicted)
    assert ladder.peak == 1e12
    timing = [now for now in seen if now[0].startswith("timing")]
    assert timing[-1][1] == timing[-1][2]
    assert len(ladder.conditions.spins) == 3


def test_a_rung_that_cannot_run_or_is_wrong_says_so_and_the_rest_go_on(
    quick, trusting, monkeypatch
):
    serial, wrong, good = rungs(CPU)[:3]
    fault = Fault("conv (1@3x3 on 1x4x4)", "whole numbers", "output[0] is 1, must be 2 within 0")

    def verify(rung, device, network, batch, progress):
        return Verdict(1, 1, 1, 9.0, fault if rung is wrong else None)

    monkeypatch.setattr(proofs, "verify", verify)
    absent = replace(serial, missing=lambda device: "it is on holiday")
    monkeypatch.setattr(climb, "rungs", lambda device: [absent, wrong, good])
    subject = climb.prepare("ece408", None, None, images=2)
    ladder = climb.climb(subject.network, subject.dataset.images, CPU, 2, 1)
    rows = ladder.rows
    assert rows[0].missing == "it is on holiday"
    assert rows[0].network is None
    assert not rows[1].verdict.passed
    assert rows[1].network is None
    assert rows[2].network is not None
    assert "threads computes something wrong: conv (1@3x3" in notes(ladder, subject)


def test_nothing_to_time(quick, monkeypatch):
    monkeypatch.setattr(climb, "rungs", lambda device: [])
    subject = climb.prepare("cifar10", None, None, images=1)
    with pytest.raises(TilewrightError, match="no rung can be timed"):
        climb.climb(subject.network, subject.dataset.images, CPU, 1, 1)


def test_what_is_not_here_is_random_and_said_so(tmp_path):
    assert climb.prepare("ece408-2017", None, None, 1).weights_note == "random weights"
    assert climb.prepare("ece408", None, None, 1).weights_note == "trained weights"


def test_a_rung_that_needs_more_than_the_device_has_says_so_and_the_rest_go_on(quick, monkeypatch):
    large, good = rungs(CPU)[1:3]
    verdict = Verdict(seed=1, trials=1, outputs=1, worst=0.0, fault=None)

    def verify(rung, device, network, batch, progress):
        if rung is large:
            raise DoesNotFit("conv1: shared_conv needs shared memory of 57,600 bytes")
        return verdict

    monkeypatch.setattr(proofs, "verify", verify)
    none = replace(CEILINGS, flops=None)
    monkeypatch.setattr(climb, "ceilings", lambda *given, at_least: (none, None))
    monkeypatch.setattr(climb, "rungs", lambda device: [large, good])
    subject = climb.prepare("cifar10", None, None, images=1)
    ladder = climb.climb(subject.network, subject.dataset.images, CPU, 1, 1)
    assert "57,600 bytes" in ladder.rows[0].missing
    assert ladder.rows[1].network is not None
    shown = " ".join(notes(ladder, subject).split())
    assert f"{large.name} cannot run here: conv1: shared_conv needs" in shown
    assert "peak: not measured" in shown


def test_a_memory_plan_that_is_refused_is_known_before_anything_is_verified(quick, monkeypatch):
    def refuse(device, memory):
        raise TilewrightError("it shares no memory with the host")

    monkeypatch.setattr(proofs, "verify", lambda *given, **more: pytest.fail("verified in vain"))
    one = replace(rungs(CPU)[0], open_runtime=refuse)
    monkeypatch.setattr(climb, "rungs", lambda device: [one])
    subject = climb.prepare("cifar10", None, None, images=1)
    with pytest.raises(TilewrightError, match="serial: it shares no memory with the host"):
        climb.climb(subject.network, subject.dataset.images, CPU, 1, 1)


def row(name, precision, choice=(), against=None, seconds=(1.0,)):
    rung = replace(
        rungs(CPU)[0], name=name, precision=precision, precisions=choice, against=against
    )
    return climb.Row(rung, measured=measured(seconds) if seconds else None)


def measured(seconds, **changes):
    made = Measured(Sample(seconds), {}, "", None, None, 0, np.zeros(1, np.int64))
    return replace(made, **changes)


def test_a_rung_is_compared_with_the_one_it_changes_not_with_its_neighbour():
    direct, reduce = row("direct", FLOAT32), row("direct-reduce", FLOAT32, against="direct")
    padded = row("padded", FLOAT32, against="direct")
    rows = [direct, reduce, padded]
    assert [climb.changed(each, rows) for each in rows] == [None, direct, direct]
    untimed = row("direct", FLOAT32, seconds=())
    assert climb.changed(padded, [untimed, padded]) is None


def test_precisions_are_compared_with_their_own():
    gemm = row("fused-gemm", FLOAT32)
    tensors = [row("tensor", p, (FP16, TF32), "fused-gemm") for p in (FP16, TF32)]
    networks = [row("network", p, (FP16, TF32, FLOAT32), "tensor") for p in (FP16, TF32, FLOAT32)]
    rows = [gemm, *tensors, *networks]
    found = [climb.changed(each, rows) for each in rows]
    # There is no fp32 among the tensor cores': the last is compared with what they change.
    assert found == [None, gemm, gemm, tensors[0], tensors[1], gemm]


def test_a_peak_below_a_rungs_own_rate_is_measured_again(quick, trusting, monkeypatch):
    """Only what a rung of ours really computes counts, in float32."""
    asked = []

    def ceilings(device, name, at_least):
        asked.append((device, at_least))
        return CEILINGS, "the ceilings may be too low"

    monkeypatch.setattr(climb, "ceilings", ceilings)
    threads, im2col = rungs(CPU)[1:3]
    rough = replace(im2col, name="rough", precision=FP16)
    library = replace(im2col, name="library", vendor=True)
    monkeypatch.setattr(climb, "rungs", lambda device: [threads, im2col, rough, library])
    subject = climb.prepare("cifar10", None, None, images=2)
    network = subject.network
    ladder = climb.climb(network, subject.dataset.images, CPU, 2, 1)
    inside = sum(stage.inside_flops for stage in network.stages)
    rates = [
        2 * flops / row.network.median
        for row, flops in zip(ladder.rows[:2], (inside, network.flops), strict=True)
    ]
    assert asked == [(CPU, pytest.approx(max(rates)))]
    assert ladder.notices == ("the ceilings may be too low",)


@pytest.mark.parametrize(("batch", "images", "tried"), [(2, 3, 2), (100, 3, 3)])
def test_rungs_are_verified_at_the_batch_that_is_timed(
    batch, images, tried, quick, trusting, monkeypatch
):
    batches = []

    def verify(rung, device, network, batch, progress):
        batches.append(batch)
        return Verdict(1, 1, 1, 0.0, None)

    monkeypatch.setattr(proofs, "verify", verify)
    monkeypatch.setattr(climb, "rungs", lambda device: rungs(CPU)[2:3])
    subject = climb.prepare("cifar10", None, None, images=images)
    climb.climb(subject.network, subject.dataset.images, CPU, batch, 1)
    assert batches == [tried]


def test_rungs_of_one_s_own_stand_behind_what_they_change():
    def rung(name, against=None, vendor=False, origin=None):
        return replace(choose(CPU, "im2col"), name=name, against=against, vendor=vendor,
                       origin=origin)  # fmt: skip

    ladder = [rung("a"), rung("b", "a"), rung("c", "b"), rung("d", vendor=True)]
    own = [rung("mine", "a", origin="m.cl"), rung("new", origin="n.cl"), rung("more", "c")]
    own += [rung("again", "a", origin="a.cl")]
    names = [each.name for each in climb.with_own(ladder, own)]
    assert names == ["a", "mine", "again", "b", "c", "more", "new", "d"]
    with pytest.raises(TilewrightError, match=r"m.cl and o.cl are both named 'mine'"):
        climb.with_own(ladder, [*own, rung("mine", origin="o.cl")])


@needs_opencl
def test_a_kernel_file_is_a_row_and_one_that_stops_its_worker_is_told(quick, monkeypatch):
    """The others are timed all the same."""
    own = [replace(load(KERNELS / "plane.cl"), name=name) for name in ("mine", "broken")]
    verdict = Verdict(seed=1, trials=1, outputs=1, worst=0.0, fault=None)
    tried = []

    def verify(rung, *given, **more):
        tried.append(rung)
        if rung.name == "broken":
            raise WorkerStopped("the worker was stopped")
        return verdict

    monkeypatch.setattr(proofs, "verify", verify)
    monkeypatch.setattr(climb, "ceilings", lambda *given, at_least: (CEILINGS, None))
    monkeypatch.setattr(climb, "rungs", lambda device: [find("direct")])
    made = Network("little", Pixels((1, 9, 8)), (Convolution(3, 3),))
    made = made.with_parameters(random_parameters(made, np.random.default_rng(1)))
    images = np.zeros((2, 1, 9, 8), np.uint8)
    ladder = climb.climb(made, images, OPENCL, 2, 1, own=own)
    assert [row.rung.name for row in ladder.rows] == ["direct", "mine", "broken"]
    direct, mine, broken = ladder.rows
    assert direct.network and mine.network and mine.verdict is verdict
    assert (broken.network, broken.missing) == (None, "the worker was stopped")
    assert [rung.name for rung in tried] == ["mine", "broken", "direct"]
    # Files' kernels are tried in a worker, the ladder's own in this process.
    assert [r.open_runtime is find("direct").open_runtime for r in tried] == [False, False, True]


def no_progress(*now):
    pass


def test_a_gpus_rungs_are_proven_side_by_side_and_a_cpus_one_by_one(monkeypatch):
    some = [find("direct"), find("tuned")]
    asked, shared = [], []

    @contextmanager
    def together(*given):
        asked.append(given)
        yield lambda rung: "together", dict.fromkeys(rung.label for rung in some)

    monkeypatch.setattr(proofs, "side_by_side", together)
    monkeypatch.setattr(proofs, "shares", lambda rung, network: ["a", "b", "c"])
    monkeypatch.setattr(proofs.environment, "cpu_cores", lambda: 16)
    monkeypatch.setattr(proofs.environment, "memory_bytes", lambda: 2**40)
    monkeypatch.setattr(proofs, "compile_shared", lambda *given: shared.append(given))
    monkeypatch.setattr(proofs, "verify", lambda *given, batch, progress: (*given, batch))
    monkeypatch.setattr(proofs.cuda, "takes_processes", lambda index: index == 0)
    limits = SimpleNamespace(memory_bytes=2**36)
    monkeypatch.setattr(proofs.cuda, "device_limits", lambda device: limits)
    with proofs._proofs(some, CUDA, "network", 7, False, None, no_progress) as made:
        assert made.prove(some[0], None) == "together"
        assert set(made.begun) == {"direct", "tuned"}
    ((able, question, room, first),) = asked
    assert (able, question.device, question.network, question.batch) == (some, CUDA, "network", 7)
    assert room.proofs == 6
    first()
    assert shared == [(some, CUDA, "network", 7, question.seed)]
    for few, on in ((some, CPU), (some[:1], CUDA), (some, Device("cuda", 1))):
        with proofs._proofs(few, on, "network", 7, False, None, no_progress) as made:
            assert made.prove(some[0], None) == (some[0], on, "network", 7)
            assert not made.begun
    assert len(asked) == 1


def test_a_library_on_cuda_is_looked_at_when_proofs_have_begun(quick, monkeypatch):
    """To import one takes seconds; what keeps it from running is told in its row all the same."""
    seen, begin = [], proofs._proofs
    gone = replace(find("torch"), missing=lambda device: seen.append("looked at") or "it is gone")
    usable = SimpleNamespace(missing=lambda device: None)
    monkeypatch.setattr(climb, "gpu_backend", lambda kind: usable)
    monkeypatch.setattr(climb, "rungs", lambda device: [gone])
    monkeypatch.setattr(proofs, "_proofs", lambda *given: seen.append("begun") or begin(*given))
    subject = climb.prepare("cifar10", None, None, images=1)
    with pytest.raises(TilewrightError, match=r"no rung can be timed: torch: it is gone$"):
        climb.climb(subject.network, subject.dataset.images, CUDA, 1, 1)
    assert seen == ["begun", "looked at"]


def test_a_row_appears_when_its_rung_is_proven(monkeypatch):
    """In whatever order: the first of the ladder may take the longest."""
    able = [find(name) for name in ("direct", "shared", "tuned", "tensor")]
    verdict = Verdict(seed=1, trials=1, outputs=1, worst=0.0, fault=None)
    begun = {rung.label: Future() for rung in able[:3]}
    seen, doing = [], []

    def prove(rung, tell):
        if rung.label not in begun:
            return verdict
        assert begun[rung.label].done()  # nobody waits for it
        return begun[rung.label].result()

    def elsewhere(rungs, proof):
        return nullcontext(proofs.Proofs(prove, begun))

    rows = proofs.prove(
        able, CUDA, "network", 7, False, lambda *now: doing.append(now), elsewhere, None,
        lambda: {"tuned": None, "tensor fp16": "gone"},
    )  # fmt: skip
    begun["tuned"].set_result(verdict)
    seen.append(next(rows))
    seen.append(next(rows))
    begun["shared"].set_exception(DoesNotFit("too large"))
    seen.append(next(rows))
    begun["direct"].set_result(verdict)
    seen += rows
    assert [row.rung.name for row in seen] == ["tensor", "tuned", "shared", "direct"]
    assert [row.place for row in seen] == [3, 2, 1, 0]
    assert [row.missing for row in seen] == ["gone", None, "too large", None]
    assert doing[0] == ("proving side by side, 2 to go", 0, 4)
    assert doing[-1] == ("proving side by side, 1 to go", 2, 4)


def test_what_was_proven_before_is_not_proven_again_unless_asked(quick, trusting, monkeypatch):
    tried = []

    def verify(rung, *given, batch, progress):
        tried.append(f"{rung.name} {batch}")
        return Verdict(1, 1, 1, 0.25, None)

    monkeypatch.setattr(proofs, "verify", verify)
    monkeypatch.setattr(climb, "rungs", lambda device: [find("im2col"), find("threads")])
    subject = climb.prepare("cifar10", None, None, images=2)

    def climbed(batch=2, **more):
        tried.clear()
        images = subject.dataset.images
        found = climb.climb(subject.network, images, CPU, batch, 1, **more)
        assert all(row.network is not None for row in found.rows)
        return notes(found, subject)

    both = ["im2col 2", "threads 2"]
    for more in ({}, {"keep": True}):  # what is not to be kept is not
        assert "--prove" not in climbed(**more)
        assert tried == both
    assert "has changed since: every rung (--prove proves them again)" in climbed(keep=True)
    assert tried == []
    for more in ({}, {"keep": True, "anew": True}):
        assert "--prove" not in climbed(**more)
        assert tried == both
    climbed(batch=1, keep=True)
    assert tried == ["im2col 1", "threads 1"]
    asked = []
    monkeypatch.setattr(proofs, "verify_briefly", lambda *given, **more: asked.append(given) or
                        Verdict(1, 1, 1, 0.25, None))  # fmt: skip
    climbed(keep=True, short=True)
    assert len(asked) == 2


def test_all_images_are_taken_where_fewer_may_be():
    with pytest.raises(TilewrightError, match="--images 10000"):
        climb.prepare("ece408", None, None, 10_000)
    assert len(climb.prepare("ece408", None, None, 10_000, or_all=True).dataset) == 1000
    assert len(climb.prepare("ece408", None, None, 7, or_all=True).dataset) == 7


def test_rungs_are_chosen_by_name_and_one_of_the_cpu_stands_beside_a_gpu():
    names = [each.name for each in climb._chosen(OPENCL, ["padded", "direct", "serial"])]
    assert names == ["serial", "direct", "padded"]
    assert climb.device_of(find("serial"), OPENCL) == CPU
    assert [each.label for each in climb._chosen(CUDA, ["network fp16"])] == ["network fp16"]
    with pytest.raises(TilewrightError, match=r"'padde'.*padded"):
        climb._chosen(OPENCL, ["padde"])


def test_a_short_proof_is_asked_for_and_said(quick, trusting, monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(proofs, "verify", lambda *given, **more: pytest.fail("not short"))
    verdict = Verdict(seed=1, trials=7, outputs=2_000_000, worst=0.5, fault=None)
    monkeypatch.setattr(
        proofs, "verify_briefly", lambda rung, *given, **more: asked.append(rung.name) or verdict
    )
    subject = climb.prepare("cifar10", None, None, images=2)
    show = live.Lines()
    ladder = climb.climb(
        subject.network, subject.dataset.images, CPU, 2, 1, names=("im2col", "fused"),
        against="fused", short=True, audience=show, progress=show.progress,
    )  # fmt: skip
    said = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line.partition(":")[0] for line in said] == ["im2col", "fused", "timing in turns"]
    assert asked == ["im2col", "fused"]
    assert "short proofs" in notes(ladder, subject)
    assert [row.rung.name for row in show.rows] == asked
    assert {name: len(taken) for name, taken in show.seconds.items()} == {"im2col": 1, "fused": 1}
    assert climb.changed(ladder.rows[0], ladder.rows, "fused") is ladder.rows[1]
    assert live.words(show.rows[0]) == "proven: 7 trials, 2.0 M outputs, worst 0.50 of its bound"
    # In whatever order they were proven, they stand in the ladder's.
    again = live.Lines()
    for row in reversed(show.rows):
        again.proven(row)
    assert again.rows == show.rows


@needs_opencl
def test_every_memory_plan_is_a_row_and_the_cpu_one_beside_them(quick, trusting):
    made = Network("little", Pixels((1, 9, 8)), (Convolution(3, 3),))
    made = made.with_parameters(random_parameters(made, np.random.default_rng(1)))
    images = np.zeros((2, 1, 9, 8), np.uint8)
    ladder = climb.climb(made, images, OPENCL, 1, 1, "all", names=("direct", "serial"))
    names = [row.name for row in ladder.rows]
    assert names[0] == "serial, cpu" and len(set(names)) == len(names)
    assert {"direct, resident", "direct, managed", "direct, per-layer"} <= set(names)
    timed = {row.name: row.measured for row in ladder.rows if row.measured}
    assert timed["serial, cpu"].device is None
    assert timed["direct, resident"].device.median > 0
    assert ("conv",) in timed["direct, resident"].layers


@needs_opencl
def test_a_ladder_of_a_gpu_needs_a_rung_that_runs_there(quick, trusting):
    subject = climb.prepare("cifar10", None, None, images=1)
    with pytest.raises(TilewrightError, match="no rung can be timed: there is none"):
        climb.climb(subject.network, subject.dataset.images, OPENCL, 1, 1, names=("serial",))


def test_a_rung_with_one_memory_plan_has_one_row_among_all(quick, trusting, monkeypatch):
    monkeypatch.setattr(climb, "rungs", lambda device: rungs(CPU)[2:3])
    subject = climb.prepare("cifar10", None, None, images=1)
    ladder = climb.climb(subject.network, subject.dataset.images, CPU, 1, 1, "all")
    (row,) = ladder.rows
    assert row.name == "im2col, host" and row.measured is not None
