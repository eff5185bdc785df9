"""Profile a run: kernels, copies and API calls, layer by layer, and where the wall time went."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options, output
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import RenderableType

    from tilewright.profiling.session import Progress, Recording, Subject

DEFAULT_REPEATS = 6  # the fewest that say how certain their median is
OUTPUTS = ("json", "csv", "trace")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    parser.add_argument(
        "--repeats", type=options.positive, default=DEFAULT_REPEATS, metavar="N",
        help="runs that are timed without recording, to say how much recording slows things down "
        "(default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--compare", nargs=2, metavar=("A", "B"),
        help="two rungs, or two profiles saved with --json, side by side: what moved",
    )  # fmt: skip
    parser.add_argument(
        "--trace", metavar="FILE",
        help="write a timeline that Perfetto (ui.perfetto.dev) and chrome://tracing open",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE|-",
        help="save the profile as JSON (-: to stdout, instead of tables)",
    )  # fmt: skip
    parser.add_argument("--csv", metavar="FILE", help="write the rows of the tables as CSV")
    parser.add_argument(
        "--from-start", action="store_true",
        help="what the program did before the run, too: context, modules, first allocations",
    )  # fmt: skip
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    options.check_outputs(arguments, OUTPUTS, may_be_stdout=("json",))
    if arguments.compare is not None:
        return _compare(arguments)
    return _profile(arguments)


def _profile(arguments: argparse.Namespace) -> int:
    from tilewright.profiling import saved
    from tilewright.profiling.ceilings import measured_again
    from tilewright.profiling.session import prepare
    from tilewright.views import console
    from tilewright.views import profile as view

    request = options.request(arguments)
    with console.progress_line() as progress:
        subject = prepare(request, arguments.repeats, progress)
        recording = _record(subject, arguments.trace, progress)
        profile = measured_again(recording.profile)
    try:
        report = view.report(profile, arguments.from_start)
        _write(arguments, saved.record(profile), saved.to_csv(profile), report)
    finally:
        _raise(recording, arguments)
    return 0


def _record(subject: Subject, trace: str | None, progress: Progress) -> Recording:
    from tilewright.profiling.session import record
    from tilewright.views.timeline import Timeline

    if trace is None:
        return record(subject, progress)
    with atomic_write(Path(trace)) as file:
        timeline = Timeline(file, Path(trace), subject.ceilings.device)
        recording = record(subject, progress, timeline)
        timeline.finish()
    return recording


def _compare(arguments: argparse.Namespace) -> int:
    from dataclasses import replace

    from tilewright.model.load import describe
    from tilewright.profiling import compare, saved
    from tilewright.profiling.result import layers_of
    from tilewright.profiling.session import prepare_all, record
    from tilewright.views import comparison as view
    from tilewright.views import console

    for option in ("rung", "trace"):
        if getattr(arguments, option) is not None:
            raise TilewrightError(f"--{option} is of one run, and --compare is about two")
    if arguments.from_start:
        raise TilewrightError("--from-start is of one run, and --compare is about two")
    sides = [saved.read(Path(name)) if _is_saved(name) else None for name in arguments.compare]
    rungs = [name for name, side in zip(arguments.compare, sides, strict=True) if side is None]
    requests = [replace(options.request(arguments), rung=name) for name in rungs]
    for side in sides:
        if side is not None and rungs:  # rather refuse it now than after minutes
            network = describe(arguments.net)
            compare.check(side, layers_of(network), network.name)
    with console.progress_line() as progress:
        # All is timed before anything is recorded: what records a device stays in the process.
        subjects = iter(prepare_all(requests, arguments.repeats, progress))
        profiles = []
        for side in sides:
            if side is None:
                recording = record(next(subjects), progress)
                _raise(recording, arguments)
                side = recording.profile
            profiles.append(side)
    found = compare.compare(*profiles)
    _write(arguments, compare.record(found), view.to_csv(found), view.report(found))
    return 0


def _is_saved(name: str) -> bool:
    """Whether a side is a profile in a file, and not a rung: kernel files are rungs."""
    from tilewright.rungs import OWN_SUFFIXES

    return not name.endswith(OWN_SUFFIXES) and (name.endswith(".json") or Path(name).is_file())


def _write(
    arguments: argparse.Namespace, record: Struct, rows: str, report: Iterable[RenderableType]
) -> None:
    """Write what files are asked for, then print the tables, or the JSON in their place."""
    from tilewright.results import document

    text = document.text(record)
    output.write((arguments.json, text), (arguments.csv, rows))
    output.show(arguments.json, text, report, arguments.format)


def _raise(recording: Recording, arguments: argparse.Namespace) -> None:
    """What cut a run short decides how the command ends; the partial profile is written by then."""
    error = recording.error
    if error is None:
        return
    if isinstance(error, KeyboardInterrupt) or arguments.traceback:
        raise error
    raise TilewrightError(
        f"rung {recording.profile.rung} on {recording.profile.device}: {recording.profile.stopped}"
    ) from error
