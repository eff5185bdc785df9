"""Plant mistakes into a rung, and watch the proof find each of them and say what it is."""

from __future__ import annotations

import argparse

from tilewright.cli import options
from tilewright.errors import TilewrightError, unknown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", metavar="RUNG", help="any rung of the ladder")
    parser.add_argument(
        "--mistake", metavar="NAME", help="only this one (default: all that fit the rung)"
    )
    parser.add_argument(
        "--device", type=options.device, metavar="NAME",
        help="where (default: the CPU for its rungs, else the first GPU runtime that is here)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of the proof's numbers (default: 1)"
    )
    options.add_network(parser)
    options.add_precision(parser)
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    import numpy as np

    from tilewright.cli import output
    from tilewright.climb import prepare
    from tilewright.rungs import choose, find
    from tilewright.runtime.device import CPU, DEVICES
    from tilewright.truth.diagnose import diagnose
    from tilewright.truth.planted import MISTAKES, changes, mistakes_for, planted
    from tilewright.truth.quick import quick
    from tilewright.truth.verify import prove
    from tilewright.views import console
    from tilewright.views import planted as view

    device = arguments.device
    if device is None:
        found = find(arguments.rung)
        here = [each for each in DEVICES if each.kind in found.devices and not found.missing(each)]
        device = here[0] if here else CPU
    rung = choose(device, arguments.rung, arguments.precision)
    names = [mistake.name for mistake in MISTAKES]
    if arguments.mistake is not None and arguments.mistake not in names:
        raise unknown("mistake", arguments.mistake, names)
    fitting = list(mistakes_for(rung, device))
    wanted = [each for each in fitting if arguments.mistake in (None, each.name)]
    if not wanted:
        raise TilewrightError(
            f"rung {rung.name!r} has no place for the mistake {arguments.mistake!r}; it has one "
            f"for: {', '.join(each.name for each in fitting)}"
        )
    network = prepare(arguments.net, arguments.weights, None, 1).network
    outcomes = []
    with console.progress_line() as tell:
        for index, mistake in enumerate(wanted):
            tell(f"{rung.name} with a mistake: {mistake.words}", index, len(wanted))
            tried = quick(rung.precision, [network], np.random.default_rng(arguments.seed))
            verdict = prove(planted(rung, mistake), device, tried, arguments.seed)
            evidence = verdict.fault.evidence if verdict.fault else None
            diagnosis = None if evidence is None else diagnose(evidence)
            changed = changes(rung, mistake, device)
            outcomes.append(view.Outcome(mistake, changed, verdict, diagnosis))
    width = min(console.output().width, console.WIDTH)
    output.tables(view.report(rung.label, str(device), outcomes, width), arguments.format)
    return 0 if all(each.verdict.fault is not None for each in outcomes) else 1
