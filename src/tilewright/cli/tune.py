"""Find the fastest proven way to compute each layer, and write it as a plan."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError
from tilewright.files import check_writable
from tilewright.terminal import printable

if TYPE_CHECKING:
    from tilewright.rungs.rung import Rung

BUDGET = 60
IMAGES, IMAGES_CUDA = 100, 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "rungs", nargs="*", metavar="RUNG|FILE",
        help="rungs to choose from, and kernel files of your own (default: all rungs of the "
        "device; with nothing but files, these and all rungs)",
    )  # fmt: skip
    options.add_network(parser)
    options.add_device(parser)
    options.add_batch(parser)
    parser.add_argument(
        "--images", type=options.positive, metavar="N",
        help=f"images that whole networks are timed on (default: {IMAGES:,}; {IMAGES_CUDA:,} on "
        "cuda)",
    )  # fmt: skip
    options.add_precision(parser)
    parser.add_argument(
        "--budget", type=options.positive, default=BUDGET, metavar="SECONDS",
        help="for the search; what each rung chooses itself is tried in any case, and proofs and "
        "the last comparison come on top (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("plan.json"), metavar="FILE",
        help="the plan, for `run --plan`; what was tried is kept in FILE.trials, and the same "
        "command goes on from there (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--json", metavar="FILE|-", help="write all of it as JSON (-: to stdout, without tables)"
    )
    options.add_format(parser)
    keeping.add_no_save(parser)


def main(arguments: argparse.Namespace) -> int:
    import numpy as np

    from tilewright import environment, plan_file
    from tilewright.climb import prepare
    from tilewright.results import document
    from tilewright.results.climbed import conditions_record
    from tilewright.results.tune import record
    from tilewright.tune.device import OnDevice
    from tilewright.tune.session import Session
    from tilewright.tune.spans import spans
    from tilewright.tune.survey import Survey
    from tilewright.tune.trials import Trials
    from tilewright.views import console
    from tilewright.views import tune as view

    options.check_outputs(arguments, ("out", "json"), may_be_stdout=("json",))
    kept = Path(f"{arguments.out}.trials")
    check_writable(kept)
    device, precision = arguments.device, arguments.precision or "fp32"
    rungs = {rung.name: rung for rung in _rungs(arguments)}
    subject = prepare(arguments.net, arguments.weights, None, 1)
    network = subject.network
    count = arguments.images or (IMAGES_CUDA if device.kind == "cuda" else IMAGES)
    shape = (count, *network.input.shape)
    images = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    workshop = OnDevice(network, images, device, arguments.batch, rungs)
    about = plan_file.identity(network, device)
    trials = Trials(
        kept, {**about, "batch": workshop.images_at_once, "precision": precision},
        {x.name: plan_file.sha256_of(Path(x.origin)) for x in rungs.values() if x.origin},
    )  # fmt: skip
    known = sum(map(len, trials.known.values()))
    if known:
        _say(f"going on from {known} trials in {kept}")
    try:
        with console.progress_line() as tell:
            tell("what there is to choose", 0, 1)
            found = spans(network, list(rungs.values()), device)
            survey = Survey(device, found, workshop, trials, arguments.budget)
            tuned = Session(network, device, arguments.batch, rungs, survey, tell).run()
    except KeyboardInterrupt:
        _say(f"what was tried is kept in {kept}: the same command goes on from there")
        raise
    finally:
        trials.journal.close()
    plan_file.write(arguments.out, tuned.best.plan, network)
    assert workshop.conditions is not None  # of the race that there was
    made = record(
        tuned, network=network.name, device=str(device), device_name=workshop.description,
        images=count, batch=arguments.batch, precision=precision, weights=subject.weights_note,
        budget=float(arguments.budget), known=known, file=str(arguments.out), net=arguments.net,
        conditions=conditions_record(workshop.conditions), environment=environment.fingerprint(),
    )  # fmt: skip
    text = document.text(made)
    output.write((arguments.json, text))
    with keeping.keeping(made, arguments):
        output.show(arguments.json, text, view.report(made), arguments.format)
    return 0


def _rungs(arguments: argparse.Namespace) -> list[Rung]:
    """Those that are named, or all, in the precision asked for; each name once."""
    from tilewright.rungs import OWN_SUFFIXES, choose, rungs
    from tilewright.tune.spans import taking_part

    device, given = arguments.device, list(dict.fromkeys(arguments.rungs))
    files = [name for name in given if name.endswith(OWN_SUFFIXES)]
    named = [name for name in given if name not in files]
    known = {rung.name: rung for rung in rungs(device)}
    for name in named:
        if name not in known:
            choose(device, name)  # says what is wrong with it
    ours = [known[name] for name in named] if named else list(known.values())
    found = taking_part([*ours, *(choose(device, name) for name in files)], device,
                        arguments.precision)  # fmt: skip
    names = [rung.name for rung in found]
    for rung in found:
        if names.count(rung.name) > 1:
            raise TilewrightError(f"two rungs are named {rung.name!r}: names must differ")
    return found


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)
