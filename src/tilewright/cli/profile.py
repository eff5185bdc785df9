"""Profile a run: kernels, copies and API calls, layer by layer, and where the wall time went."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tilewright.cli import options, output

if TYPE_CHECKING:
    from tilewright.verbs.profile import ComparisonResult, ProfileResult

DEFAULT_REPEATS = 6  # the fewest that say how certain their median is
OUTPUTS = ("json", "csv", "trace")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_run(parser)
    options.add_plan(parser)
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
    parser.add_argument(
        "--counters", action="store_true",
        help="the GPU's own counters, too: achieved occupancy, warp efficiency, use of memories; "
        "needs NVIDIA's ncu and the driver's permission",
    )  # fmt: skip
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright.verbs.profile import Interrupted, Stopped, profile

    options.check_outputs(arguments, OUTPUTS, may_be_stdout=("json",))
    try:
        _show(profile(**options.given(arguments, profile), progress=True), arguments)
    except (Interrupted, Stopped) as stopped:
        # What cut a run short decides how the command ends; what was recorded is shown before.
        if arguments.compare is None:
            _show(stopped.result, arguments)
        raise
    return 0


def _show(result: ProfileResult | ComparisonResult, arguments: argparse.Namespace) -> None:
    """Write what files are asked for, then print the tables, or the JSON in their place."""
    text = result.to_json()
    output.write((arguments.json, text), (arguments.csv, result.to_csv()))
    output.show(arguments.json, text, result.report(), arguments.format)
