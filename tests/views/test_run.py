"""The views of a run, on a trace made by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.results.made import ENVIRONMENT
from tilewright.data.dataset import Dataset
from tilewright.job import Result
from tilewright.model import zoo
from tilewright.plan import uniform
from tilewright.results.document import text
from tilewright.results.run import WorkerTime, record
from tilewright.rungs import choose
from tilewright.runtime.device import CPU
from tilewright.trace import Event, Trace
from tilewright.views import console, meaning
from tilewright.views import run as view


def result(events, labels=(1, 2)):
    network = zoo.network("cifar10")
    rung = choose(CPU, "im2col")
    pixels = np.zeros((2, 3, 32, 32), np.uint8)
    given = None if labels is None else np.array(labels)
    outputs = np.eye(10, dtype=np.float32)[[1, 3]]
    trace = Trace()
    trace.events = [
        Event("phase", "load data", 0, 1),
        *events,
        Event("phase", "forward", 2, 12),
    ]
    return Result(
        network, Dataset("d", pixels, given, "by hand"), rung, uniform(network, rung, CPU, 1),
        "a CPU", outputs, outputs.argmax(1), None if labels is None else 1, trace, 10**8,
        ENVIRONMENT,
    )  # fmt: skip


KERNELS = [
    Event("kernel", "k", 2, 5, ("conv1",)),
    Event("kernel", "k", 5, 6, ("relu1",)),
    Event("kernel", "k", 6, 10, ("conv1",)),
    Event("copy", "host to device", 10, 10.5, bytes=8),
]


def printed(some):
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for part in view.report(record(some)):
        console.print(part)
    return console.export_text()


def test_a_share_stays_with_its_kind():
    layers, lengths = ("conv1", "fc", "input", "softmax"), (9.65, 0.0987, 0.0876, 0.0000101)
    kernels = [Event("kernel", "k", 2, 2 + t, (n,)) for n, t in zip(layers, lengths, strict=True)]
    text = printed(result(kernels))
    rows = text[text.index("By kind") : text.index("Op time")].splitlines()
    assert len(rows) == 2
    assert all(row.rstrip().endswith((" %)", " %),")) for row in rows)


def test_layers_add_up_and_the_remainder_is_the_rest():
    document = record(result(KERNELS))
    seconds = {layer.name: layer.seconds for layer in document.layers}
    assert list(seconds)[:3] == ["input", "conv1", "relu1"]
    assert seconds["conv1"] == 7
    assert seconds["pool3"] == 0
    assert document.copy_seconds == 0.5
    assert document.remainder_seconds == pytest.approx(10 - 8 - 0.5)
    assert document.forward_seconds == 10
    assert document.total_seconds == 12
    assert document.images_per_second == 0.2
    assert document.layers[1].flop == 2 * 2_457_600


def test_layers_computed_as_one_piece_have_one_row():
    names = tuple(stage.name for stage in zoo.network("cifar10").stages[1:])
    document = record(result([Event("kernel", "k", 2, 11, names)]))
    assert [(x.name, x.kind) for x in document.layers] == [
        ("input", "input"), ("conv1..softmax", "network"),
    ]  # fmt: skip
    assert document.layers[1].flop == 2 * 7_840_000
    assert "not computed separately" in printed(result([Event("kernel", "k", 2, 11, names)]))


def test_layers_fused_into_another_say_which():
    events = [Event("kernel", "k", 2, 5, ("conv1", "relu1", "pool1"))]
    rows = {row.name: row for row in record(result(events)).layers}
    assert list(rows)[:5] == ["input", "conv1", "relu1", "pool1", "conv2"]
    assert (rows["conv1"].seconds, rows["conv1"].within) == (3, None)
    assert (rows["pool1"].seconds, rows["pool1"].within) == (0, "conv1")
    assert "in conv1" in printed(result(events))


def test_the_report_says_it_all_within_100_columns():
    text = printed(result(KERNELS))
    for words in (
        "cifar10 over 2 images, one by one, rung im2col on cpu (a CPU)", "load data",
        "between phases", "sum of layers", "host to device", "remainder", "forward (wall)",
        "conv 7.00 s (70.0 %)", "conv1 7.00 s", "0.5000 (1 of 2)", "0 images/s", "100 MB",
    ):  # fmt: skip
        assert words in text, words
    assert max(map(len, text.splitlines())) <= 100


def test_no_labels_no_correctness():
    some = result(KERNELS, None)
    assert record(some).accuracy is None
    assert "no labels" in printed(some)


def test_devices_are_written_as_users_name_them():
    document = json.loads(text(record(result(KERNELS))))
    assert document["device"] == document["plan"]["device"] == "cpu"


def test_what_a_run_means_is_said_in_two_sentences():
    made = replace(record(result(KERNELS)), peak_flops=1e6)
    first, second = meaning.sentences(made)
    slowest = max(made.layers, key=lambda layer: layer.seconds)
    assert first.startswith(f"{slowest.name} takes longest of all layers: ")
    share = 100 * slowest.executed_flop / slowest.seconds / 1e6
    assert f"{slowest.name} reaches {share:.0f} % of the 0.00 GFLOP/s" in second
    assert len(list(meaning.sentences(replace(made, peak_flops=None)))) == 1
    assert "reaches less than 1 % of" in list(meaning.sentences(replace(made, peak_flops=1e15)))[1]


def worker(name, **changes):
    facts = {"name": name, "device_name": "a CPU", "images": 1, "parts": 1, "starting_seconds": 1.0,
             "loading_seconds": 0.5, "computing_seconds": 8.0, "waiting_seconds": 2.0}  # fmt: skip
    return WorkerTime(**(facts | changes))


def test_workers_have_a_table_of_their_own():
    one = record(result(KERNELS))
    spread = replace(one, workers=(worker("a:1"), worker("b:22")), images_per_second=100.0)
    text = console.text(view.report(spread))
    assert "rung im2col on cpu (a CPU), 2 workers" in text
    assert "forward (all workers)" in text and "forward (wall)" not in text
    assert "100 images/s, 10.0 ms an image" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("b:22")]
    assert row == ["b:22", "1", "1.00", "s", "500", "ms", "8.00", "s", "2.00", "s"]
    assert "lost" not in text
    kinds = (worker("a:1"), worker("b:2", device_name="another"), worker("c:3", lost=True, parts=0))
    text = console.text(view.report(replace(spread, workers=kinds)))
    assert "2 workers" in text and "another" in text and "lost, replaced" in text
    assert max(map(len, text.splitlines())) <= 100
