"""The course's deliverables, in its order, as numbered sections.

All of them are there: where something was not measured or not written, the section says so, and
how to get it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from typing import TypeVar

from tilewright.profiling.saved import profile_of
from tilewright.results.climbed import COURSE_SIZES
from tilewright.results.ladder import LadderRecord, RungRecord
from tilewright.results.page import AnswersRecord, KernelsRecord, TimelineRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord
from tilewright.views import units
from tilewright.views.report import (
    calls,
    compiler,
    counters,
    environment,
    layers,
    optimizations,
    timeline,
)
from tilewright.views.report.blocks import (
    Block,
    Heading,
    Paragraph,
    Section,
)
from tilewright.views.report.material import Material, profile_name, subject
from tilewright.views.report.op_times import Measured, of_ladder, of_run, op_times, outputs
from tilewright.views.report.origins import LIBRARIES

Kind = TypeVar("Kind", ProfileRecord, TimelineRecord, KernelsRecord)
CPU, SERIAL = "cpu", "serial"
KERNEL_AND_CALL = (
    "A kernel is a function that runs on the device, in thousands of threads at once: it does the "
    "arithmetic. An API call runs on the host, in one thread: it asks the driver for something, "
    "such as memory, a copy, the launch of a kernel, or to wait for one. Launching returns before "
    "the kernel is done, so that a kernel's time shows up among the calls only where the host "
    "waits: in a synchronisation, or in a copy that has to wait. The first calls of a program also "
    "load the driver, create a context and load code, whatever the network; so kernels and calls "
    "are two lists, and their times do not add up."
)


def sections(material: Material) -> list[Section]:
    """Numbered from 1."""
    made = (
        framework, most_kernels, most_calls, kernels_and_calls, both_outputs, serial, first_kernel,
        first_profile, first_timeline, every_step, tricks, who, references, where,
    )  # fmt: skip
    found = [make(material) for make in made]
    return [
        replace(each, title=f"{place}. {each.title}", blocks=tuple(each.blocks))
        for place, each in enumerate(found, 1)
    ]


def framework(material: Material) -> Section:
    runs = [run for run in material.of(RunRecord) if run.rung in LIBRARIES]
    reading = "The network as a framework computes it, with its accuracy: what is to be beaten."
    blocks: list[Block] = [outputs("The framework's network", runs)] if runs else []
    for ladder in material.ladders:
        rows = [row for row, _ in ladder.timed if row.vendor]
        if found := [each for row in rows for each in _every_size(material, ladder, row)]:
            blocks.append(op_times(subject(ladder), found))
    if not blocks:
        blocks.append(_missing("no framework was timed", "pip install 'tilewright[onnxruntime]'"))
    return _section(material, "framework", "The framework's network", reading, blocks)


def most_kernels(material: Material) -> Section:
    reading = "Those that together take more than 90 % of the device's time, the longest first."
    blocks: list[Block] = [
        calls.table(each, profile_of(each), "kernels", all_of=False) for each in _chosen(material)
    ]
    title = "Kernels: over 90 % of the time"
    return _section(material, "kernels", title, reading, blocks or [_no_profile(material)])


def most_calls(material: Material) -> Section:
    reading = (
        "Those that together take more than 90 %: of the whole program, where its start was "
        "recorded, and of the run; and how the program began."
    )
    blocks: list[Block] = []
    for each in _chosen(material):
        found = profile_of(each)
        if each.start_rows:
            blocks.append(calls.table(each, found, "all calls", all_of=False))
        if found.named("api"):
            blocks.append(calls.table(each, found, "calls", all_of=False))
        if each.start:
            blocks.append(calls.start(each))
    if not blocks:
        blocks.append(_missing("no API calls were recorded", _report(material)))
    title = "API calls: over 90 %, start-up included"
    return _section(material, "api-calls", title, reading, blocks)


def kernels_and_calls(material: Material) -> Section:
    reading = "Why there are two lists."
    blocks = [Paragraph(KERNEL_AND_CALL)]
    title = "Kernels and API calls: the difference"
    return _section(material, "difference", title, reading, blocks)


def both_outputs(material: Material) -> Section:
    reading = "What the program printed and how long it took, on the CPU and on the GPU."
    runs = layers.largest([run for run in material.of(RunRecord) if run.device == CPU])
    others = layers.largest([run for run in material.of(RunRecord) if run.device != CPU])
    blocks: list[Block] = [outputs("On the CPU", runs)] if runs else []
    blocks.append(outputs("On the GPU", others) if others else _no_run(material, "cuda"))
    if not runs:
        blocks.insert(0, _no_run(material, CPU))
    return _section(material, "outputs", "Output and run time, CPU and GPU", reading, blocks)


def serial(material: Material) -> Section:
    runs = [r for r in material.of(RunRecord) if r.device == CPU and r.rung == SERIAL]
    reading = "Seven nested loops on one core: whole run time, and op times of each convolution."
    blocks: list[Block] = []
    for title, found in _by_subject(runs):
        blocks += [op_times(title, list(map(of_run, found))), layers.processes(title, found)]
    for ladder in () if blocks else material.ladders:
        for row, _ in ladder.timed:
            if ladder.device == CPU and row.rung == SERIAL:
                blocks.append(op_times(subject(ladder), list(of_ladder(ladder, row))))
    if not runs:
        blocks.append(_no_run(material, CPU, "the serial layer was not run", SERIAL))
    return _section(material, "serial", "Our own serial layer on the CPU", reading, blocks)


def first_kernel(material: Material) -> Section:
    reading = "Correctness and op times at the course's numbers of images."
    blocks: list[Block] = []
    for ladder, row in _first(material):
        blocks += _measured(material, ladder, row)
    title = "The first GPU kernel"
    return _section(material, "first-kernel", title, reading, blocks or [_no_gpu(material)])


def first_profile(material: Material) -> Section:
    blocks: list[Block] = []
    for ladder, row in _first(material):
        for profile in _of(material.of(ProfileRecord), ladder, row.rung)[:1]:
            blocks += calls.profile(profile)
    title = "The first GPU kernel's profile"
    return _section(
        material, "first-profile", title, calls.READING, blocks or [_none(material, "profile")]
    )


def first_timeline(material: Material) -> Section:
    blocks: list[Block] = []
    for ladder, row in _first(material):
        found = _of(material.of(TimelineRecord), ladder, row.rung)[:1]
        blocks += [timeline.chart(each) for each in found if each.spans]
    title = "The first GPU kernel's timeline"
    return _section(
        material, "first-timeline", title, timeline.READING, blocks or [_none(material, "timeline")]
    )


def every_step(material: Material) -> Section:
    """Each optimization behind the first kernel, slower ones included."""
    reading = (
        "For each: what it is and why it should help, its code, correctness and op times, its "
        "kernels, what the profile says, and whether it was worth it. Slower ones stay."
    )
    blocks: list[Block] = []
    for name in dict.fromkeys(row.rung for _, row in _steps(material)):
        blocks += step(material, name)
    return _section(
        material, "optimizations", "Optimizations", reading, blocks or [_no_gpu(material)]
    )


def step(material: Material, name: str) -> Iterator[Block]:
    """What the course asks of an optimization, in its order."""
    found = [(ladder, row) for ladder, row in _steps(material) if row.rung == name]
    yield Heading(name)
    yield optimizations.what_and_why(found[0][1])
    kernels = [each for each in material.of(KernelsRecord) if each.rung == name]
    yield from map(compiler.source, kernels[:1])
    for ladder, row in found:
        yield from _measured(material, ladder, row)
    for profile in material.of(ProfileRecord):
        if profile.rung == name:
            yield optimizations.what_the_profile_says(profile)
            if profile.counters:
                yield from counters.blocks(profile_of(profile), profile_name(profile))
    for ladder, row in found:
        yield optimizations.what_it_did(ladder, row)
    yield material.words_for(name)


def tricks(material: Material) -> Section:
    reading = "Small changes of the code that were tried at the end, and what each did."
    return _written(material, "small tricks", "Small tricks", reading)


def who(material: Material) -> Section:
    return _written(material, "who did what", "Who did what", "The work of each author.")


def references(material: Material) -> Section:
    reading = "What was read and used, beside Tilewright's own rungs, which name their origin."
    return _written(material, "references", "References", reading)


def where(material: Material) -> Section:
    return environment.section(material)


def _measured(material: Material, ladder: LadderRecord, row: RungRecord) -> Iterator[Block]:
    """Op times at all sizes that were run, and the kernels' statistics."""
    found = _every_size(material, ladder, row)
    yield op_times(subject(ladder), found)
    others: list[RunRecord | AnswersRecord] = [
        *material.of(RunRecord), *material.of(AnswersRecord)
    ]  # fmt: skip
    at_hand = [each.images for each in others if each.network == ladder.network]
    there = max([each.images for each in found] + at_hand)
    timed = {each.images: each.forward for each in found if each.forward is not None}
    left_out = [size for size in COURSE_SIZES if size <= there and size not in timed]
    if left_out and timed:
        most, largest = max(left_out), max(timed)
        seconds = most / largest * timed[largest]
        long = f"{seconds / 60:.0f} minutes" if seconds >= 120 else units.seconds(seconds)
        sizes = " and ".join(map(units.count, left_out))
        yield _unrun(
            f"it was not run over {sizes} images: {units.count(most)} would take {long}",
            ladder, ladder.device, row.rung, most,
        )  # fmt: skip
    if (ladder, row) in _first(material):  # it is so of all
        yield from _images(there, any(each.correct is not None for each in found))
    for record in _of(material.of(KernelsRecord), ladder, row.rung):
        yield compiler.table(record)


def _every_size(material: Material, ladder: LadderRecord, row: RungRecord) -> list[Measured]:
    """Of runs, where there are any; the ladder has one size, and correctness at others."""
    runs = [r for r in material.of(RunRecord) if _same(r, ladder) and r.label == row.rung]
    return [*map(of_run, runs), *of_ladder(ladder, row)]


def _first(material: Material) -> list[tuple[LadderRecord, RungRecord]]:
    """The first kernel of our own on each GPU's ladder."""
    found: dict[str, tuple[LadderRecord, RungRecord]] = {}
    for ladder, row in _own(material):
        found.setdefault(subject(ladder), (ladder, row))
    return list(found.values())


def _steps(material: Material) -> list[tuple[LadderRecord, RungRecord]]:
    """All kernels behind the first."""
    first = {(subject(ladder), row.rung) for ladder, row in _first(material)}
    return [
        (ladder, row) for ladder, row in _own(material) if (subject(ladder), row.rung) not in first
    ]


def _own(material: Material) -> list[tuple[LadderRecord, RungRecord]]:
    ladders = [each for each in material.ladders if each.device != CPU]
    return [(each, row) for each in ladders for row, _ in each.timed if not row.vendor]


def _chosen(material: Material) -> list[ProfileRecord]:
    """The profiles of frameworks; without one, of each device's first kernel."""
    profiles = material.of(ProfileRecord)
    found = [each for each in profiles if each.rung in LIBRARIES]
    first: dict[str, ProfileRecord] = {}
    for each in profiles:
        first.setdefault(subject(each), each)
    return found or list(first.values())


def _of(records: Sequence[Kind], ladder: LadderRecord, rung: str) -> list[Kind]:
    return [each for each in records if _same(each, ladder) and each.rung == rung]


def _same(record: Record, ladder: LadderRecord) -> bool:
    """Whether they are of the same network on the same device."""
    return (record.network, record.device) == (ladder.network, ladder.device)


def _by_subject(runs: Sequence[RunRecord]) -> Iterator[tuple[str, list[RunRecord]]]:
    yield from Material(tuple(runs)).by_subject(RunRecord)


def _images(there: int, labelled: bool) -> Iterator[Paragraph]:
    """What the images at hand are not enough for."""
    if there < max(COURSE_SIZES):
        yield Paragraph(
            f"{units.count(max(COURSE_SIZES))} images were not at hand. To get Fashion-MNIST's "
            "(CIFAR-10's likewise), before the report is made again:",
            lead="Missing",
            command="tilewright data fetch fashion-mnist",
        )
    if not labelled:
        yield Paragraph(
            "these images have no labels, and nothing is known of correctness. --data takes some "
            "that have; to get CIFAR-10's, before the report is made again:",
            lead="Missing",
            command="tilewright data fetch cifar10",
        )


def _missing(what: str, command: str, before: str = "") -> Paragraph:
    return Paragraph(f"{what}. To get it{before}:", lead="Missing", command=command)


def _unrun(
    what: str, like: Record, device: str, label: str = "", images: int | None = None
) -> Paragraph:
    """A run that is missing, of the network that a record is of."""
    rung, _, precision = label.partition(" ")
    given = {"rung": rung, "precision": precision, "device": device, "images": images}
    options = "".join(f" --{name} {value}" for name, value in given.items() if value)
    command = f"tilewright run {_subject(like)}{options} --json run.json"
    return _missing(what, command, ", as a file for --from beside the others")


def _subject(like: Record) -> str:
    """What was computed, in the options of the command that made a record."""
    words = like.environment.command
    given = {"--net": like.network} | {
        word: after for word, after in pairwise(words) if word in ("--net", "--weights", "--data")
    }
    return shlex.join(chain.from_iterable(given.items()))


def _no_gpu(material: Material) -> Paragraph:
    return _missing("no GPU was measured", _report(material), " (or with opencl)")


def _none(material: Material, what: str) -> Paragraph:
    """Of the first kernel."""
    command = _report(material)
    return (
        _missing(f"no {what} of it was recorded", command) if _own(material) else _no_gpu(material)
    )


def _no_run(material: Material, device: str, what: str = "", rung: str = "") -> Paragraph:
    return _unrun(what or f"no run on {device}", material.records[0], device, rung)


def _no_profile(material: Material) -> Paragraph:
    return _missing("no run was profiled", _report(material))


def _report(material: Material) -> str:
    return f"tilewright report {_subject(material.records[0])} --milestone --device cuda"


def _section(
    material: Material, id: str, title: str, reading: str, blocks: Sequence[Block]
) -> Section:
    return Section(id, title, reading, (*blocks, material.words_for(id)))


def _written(material: Material, place: str, title: str, reading: str) -> Section:
    """A section that only its authors can write."""
    words = material.words_for(place)
    empty = Paragraph(
        f"write it under “# {place}” in the file of words, and build again.", lead="Missing"
    )
    blocks = (words,) if words.markdown else (empty, words)
    return Section(place.replace(" ", "-"), title, reading, blocks)
