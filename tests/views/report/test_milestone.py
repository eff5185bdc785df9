"""The course's deliverables: all of them, in its order, and what is missing named."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from msgspec.structs import replace

from tests.profiling.made import profile
from tests.results.made import run_record
from tests.views.report.made import everything, kernels, ladder
from tilewright.profiling import saved
from tilewright.profiling.counters import Counted
from tilewright.profiling.stalls import Stall
from tilewright.results import page as documents
from tilewright.results.run import Usage
from tilewright.views.report.blocks import Paragraph, Table
from tilewright.views.report.markdown import to_markdown
from tilewright.views.report.material import Material
from tilewright.views.report.page import page

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
H200 = RESULTS / "2026-11-15-profile-h200-direct-managed.json"
USED = Usage(user_seconds=3.0, system_seconds=0.5, elapsed_seconds=2.0, page_faults=9)
TITLES = (
    "The framework's network", "Kernels: over 90 % of the time",
    "API calls: over 90 %, start-up included", "Kernels and API calls: the difference",
    "Output and run time, CPU and GPU", "Our own serial layer on the CPU", "The first GPU kernel",
    "The first GPU kernel's profile", "The first GPU kernel's timeline", "Optimizations",
    "Small tricks", "Who did what", "References", "Environment and commands",
)  # fmt: skip


def course_runs():
    """Kernels, a framework and the loops, at the course's sizes."""
    rungs = {"cuda": ("direct", "shared", "step2", "torch"), "cpu": ("serial", "torch")}
    for device, names in rungs.items():
        for rung in names:
            for images in (100, 1000, 10_000):
                yield run_record(
                    device=device, device_name="a GPU" if device == "cuda" else "a CPU",
                    rung=rung, label=rung, images=images, usage=USED,
                )  # fmt: skip


def sections(*records, words=None):
    made = page(Material(records, words or {}), as_milestone=True)
    return {re.sub(r"^\d+\. ", "", each.title): each for each in made.sections}


def missing(section):
    found = [each for each in section.blocks if isinstance(each, Paragraph)]
    return [f"{each.text} {each.command}" for each in found if each.lead == "Missing"]


def tables(section):
    return [each for each in section.blocks if isinstance(each, Table)]


def test_all_are_there_in_the_courses_order_whatever_was_measured():
    for records in (everything(), (run_record(),)):
        made = page(Material(records), as_milestone=True).sections
        assert [each.title for each in made] == [f"{i}. {t}" for i, t in enumerate(TITLES, 1)]


def test_with_everything_measured_only_the_authors_words_are_missing():
    found = sections(*everything(), *course_runs())
    assert [title for title, each in found.items() if missing(each)] == [
        "Small tricks", "Who did what", "References"
    ]  # fmt: skip
    written = {"small tricks": "None.", "who did what": "I did.", "references": "A book."}
    found = sections(*everything(), *course_runs(), words=written)
    assert not any(missing(each) for each in found.values())


def test_what_was_not_measured_is_named_with_a_command():
    found = sections(run_record())
    for title in ("The framework's network", "The first GPU kernel", "Optimizations"):
        (words,) = missing(found[title])
        assert re.search("To get it.*: (tilewright|pip) ", words)
    assert "no GPU" in missing(found["The first GPU kernel's timeline"])[0]
    without = [each for each in everything() if each.verb() != "timeline"]
    found = sections(*without)
    assert "no timeline of it" in missing(found["The first GPU kernel's timeline"])[0]


def test_correctness_and_op_times_at_the_courses_sizes():
    (table, statistics) = tables(sections(*everything(), *course_runs())["The first GPU kernel"])
    assert list(table.columns) == [
        "rung", ">images", ">correctness", ">Op Time conv1, ms", ">forward, ms"
    ]  # fmt: skip
    assert [[str(getattr(cell, "text", cell)) for cell in row] for row in table.rows] == [
        ["direct", size, "0.7500", "9.00", "10.0"] for size in ("100", "1,000", "10,000")
    ]
    assert ">registers" in statistics.columns


def test_outputs_are_of_as_many_images_for_every_rung():
    runs = [run for run in course_runs() if (run.rung, run.images) != ("shared", 10_000)]
    _, on_gpu = tables(sections(*everything(), *runs)["Output and run time, CPU and GPU"])
    assert {row[3].value for row in on_gpu.rows} == {1000}


def test_a_size_that_only_others_were_run_over_is_named():
    runs = [run for run in course_runs() if (run.rung, run.images) != ("shared", 10_000)]
    found = missing(sections(*everything(), *runs)["Optimizations"])
    (said,) = (text for text in found if "--rung shared" in text)
    assert said.startswith("it was not run over 10,000 images: 10,000 would take ")
    assert "--images 10000" in said


def test_commands_are_of_the_same_network_and_precision():
    found = next(each for each in everything() if each.verb() == "ladder")
    words = ("tilewright", "ladder", "--net", "my net.onnx", "--data", "pictures", "--quick")
    rows = tuple(
        replace(row, rung="network fp16") if row.rung == "shared" else row for row in found.rows
    )
    made = replace(found, rows=rows, environment=replace(found.environment, command=words))
    runs = [run for run in course_runs() if run.rung == "direct"]
    (said,) = (text for text in missing(sections(made, *runs)["Optimizations"]) if "fp16" in text)
    assert said.endswith(
        "tilewright run --net 'my net.onnx' --data pictures --rung network --precision fp16 "
        "--device cuda --images 10000 --json run.json"
    )
    (serial,) = missing(sections(made)["Our own serial layer on the CPU"])
    assert "--net 'my net.onnx' --data pictures --rung serial --device cpu" in serial


def test_images_without_labels_are_named_once():
    runs = [replace(run, accuracy=None) for run in course_runs()]
    unlabelled = replace(
        ladder(), rows=tuple(replace(row, correctness=()) for row in ladder().rows)
    )
    found = sections(unlabelled, *runs)
    (said,) = missing(found["The first GPU kernel"])
    assert "no labels" in said and "data fetch" in said
    assert not missing(found["Optimizations"])


def test_how_long_a_size_takes_is_told_by_the_largest_that_was_run():
    runs = [run for run in course_runs() if (run.rung, run.images) != ("direct", 10_000)]
    runs = [replace(r, forward_seconds=40.0 if r.images == 1000 else 0.1) for r in runs]
    (said,) = missing(sections(*everything(), *runs)["The first GPU kernel"])
    assert "10,000 would take 7 minutes" in said


def test_whole_run_times_of_the_serial_layer():
    _, process = tables(sections(*everything(), *course_runs())["Our own serial layer on the CPU"])
    row = dict(zip(process.columns, process.rows[-1], strict=True))
    told = {name: row[name].text for name in (">real", ">user", ">system", ">CPU")}
    assert told == {">real": "2.00 s", ">user": "3.00 s", ">system": "500 ms", ">CPU": "175.0 %"}


def test_only_what_takes_90_percent_is_listed():
    found = sections(*documents.read(H200))
    (kernel,) = tables(found["Kernels: over 90 % of the time"])
    assert [row[0] for row in kernel.rows] == ["direct_conv", "layer_fc", "layer_softmax"]
    (call,) = tables(found["API calls: over 90 %, start-up included"])
    assert [row[0] for row in call.rows] == [
        "cudaStreamSynchronize", "cuLaunchKernel", "cudaMallocManaged"
    ]  # fmt: skip


def test_every_optimization_has_its_code_figures_and_verdict():
    records = (ladder(), kernels(rung="shared"))
    text = to_markdown(page(Material(records), as_milestone=True))
    part = text[text.index("### shared") : text.index("### step2")]
    order = ("**What and why:** idea of shared", "a < b && b > c", "Op Time conv1, ms", "registers",
             "worth it")  # fmt: skip
    places = [part.index(words) for words in order]
    assert places == sorted(places)
    assert "### direct" not in text  # that is the first kernel, not an optimization


def test_networks_are_not_mixed():
    other = [replace(run, network="other") for run in course_runs()]
    found = sections(*everything(), *course_runs(), *other)
    rows = [
        row for table in tables(found["Output and run time, CPU and GPU"]) for row in table.rows
    ]
    assert {(row[0], row[1], row[2]) for row in rows} >= {
        (network, device, rung)
        for network in ("small", "other")
        for device, rung in (("cpu", "serial"), ("cpu", "torch"), ("cuda", "direct"))
    }


def test_counters_say_of_each_step_what_its_warps_wait_for():
    counted = Counted("shared_conv", 2, 1e-3, 0.7, 1.0, 0.4, 0.1, 0.2, 0.3,
                      (Stall("long_scoreboard", 0.6), Stall("selected", 0.4)))  # fmt: skip
    read = saved.record(dataclasses.replace(profile(rung="shared"), counters=(counted,)))
    text = to_markdown(page(Material((*everything(), read)), as_milestone=True))
    assert "counters say of it: latency: device memory; its warps wait most for device memory, " \
        "60.0 % of their time" in text  # fmt: skip
    assert "long scoreboard \\*" in text or "long scoreboard *" in text
    none = saved.record(dataclasses.replace(profile(), uncounted="ncu is not on the PATH"))
    assert "not read: ncu is not on the PATH" in to_markdown(page(Material((none,))))


def test_calls_of_a_whole_program_have_its_start_in_them():
    begun = tuple(
        dataclasses.replace(row, name="cuModuleLoadData", seconds=9.0, phase="build kernels")
        for row in profile().of("api")[:1]
    )
    read = saved.record(dataclasses.replace(profile(rung="torch"), start_rows=begun))
    text = to_markdown(page(Material((read,)), as_milestone=True))
    asked = text[text.index("3. API calls") : text.index("4. Kernels and API calls")]
    assert "API calls from the start of the program of torch" in asked
    assert asked.index("cuModuleLoadData") < asked.index("API calls of torch")
