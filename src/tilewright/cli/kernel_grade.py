"""Judge a class: every kernel in a folder proven, timed, ranked, with points by a formula."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.cli import keeping, options, output
from tilewright.errors import TilewrightError

OUTPUTS = ("json", "csv", "html", "gradescope")
SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER", help="a kernel file, or a folder, for each student"
    )
    options.add_network(parser)
    options.add_data(parser)
    parser.add_argument(
        "--images", type=options.positive, default=1000, metavar="N",
        help="images whose answers are looked at (default: %(default)s, or all there are)",
    )  # fmt: skip
    options.add_batch(parser)
    options.add_device(parser)
    parser.set_defaults(device="opencl")
    parser.add_argument(
        "--against", default="direct", metavar="RUNG",
        help="what all are compared with (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--points", default="100", metavar="FORMULA",
        help="of a kernel that is right, a whole number of time, baseline and best (in "
        "microseconds), rank and count, as in 'max(0, min(100, 100 * (9000 - time) // 8000))' "
        "(default: %(default)s); of any other, 0",
    )  # fmt: skip
    parser.add_argument(
        "--most-points", type=options.positive, default=100, metavar="N",
        help="what Gradescope shows as the most (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=options.positive, default=SEED, metavar="N",
        help="of the numbers in the proof, the same for everybody (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--limit", type=options.positive, default=120, metavar="SECONDS",
        help="for the proof of a submission (default: %(default)s); a single launch has 10",
    )  # fmt: skip
    options.add_rounds(parser)
    parser.add_argument(
        "--journal", type=Path, metavar="FILE",
        help="what is judged already, to go on from (default: FOLDER.grading)",
    )  # fmt: skip
    options.add_trust(parser)
    parser.add_argument(
        "--json", metavar="FILE|-", help="write all of it as JSON (-: to stdout, without the table)"
    )
    parser.add_argument("--csv", metavar="FILE", help="write a row a student")
    parser.add_argument("--html", metavar="FILE", help="write one page to show")
    parser.add_argument(
        "--gradescope", metavar="FILE", help="write results.json of the one submission there is"
    )
    options.add_format(parser)
    keeping.add_no_save(parser)


def main(arguments: argparse.Namespace) -> int:
    from tilewright import __version__, environment
    from tilewright.climb import prepare
    from tilewright.judge.bench import ROUNDS
    from tilewright.judge.grade import Grading, formula, ranked
    from tilewright.judge.referee import Referee
    from tilewright.judge.submissions import submissions
    from tilewright.results import document
    from tilewright.results.grade import GradeRecord
    from tilewright.rungs import choose
    from tilewright.runtime.registry import gpu_backend
    from tilewright.views import console
    from tilewright.views import grade as view
    from tilewright.views.check import lines

    device = arguments.device
    if device.kind == "cpu":
        raise TilewrightError("kernel files run with --device opencl or cuda, not on cpu")
    options.check_outputs(arguments, OUTPUTS, may_be_stdout=("json",))
    points = formula(arguments.points)
    handed_in = submissions(arguments.folder)
    if arguments.gradescope is not None and len(handed_in) != 1:
        raise TilewrightError(
            f"--gradescope is of one submission, and {arguments.folder} has {len(handed_in)}"
        )
    baseline = choose(device, arguments.against)
    subject = prepare(
        arguments.net, arguments.weights, arguments.data, arguments.images, or_all=True
    )
    backend = gpu_backend(device.kind)
    name = backend.open_runtime(device, "resident").describe()
    about = {
        "version": __version__, "network": subject.network.name, "device": name,
        "data": subject.dataset.source, "images": len(subject.dataset), "batch": arguments.batch,
        "against": baseline.label, "seed": arguments.seed,
    }  # fmt: skip
    journal = arguments.journal or arguments.folder.with_name(f"{arguments.folder.name}.grading")
    referee = Referee(
        subject.network, subject.dataset, device, arguments.batch, baseline, arguments.seed,
        arguments.repeats or ROUNDS, arguments.limit,
        lambda checked: "\n".join(lines(checked, None, arguments.seed)), arguments.trust,
    )  # fmt: skip
    with console.progress_line() as tell:
        grading = Grading(journal, about)
        judged = grading.judge(
            handed_in, referee, lambda student, done, of: tell(f"judging {student}", done, of)
        )
    made = GradeRecord(
        network=subject.network.name, device=str(device), device_name=name,
        environment=environment.fingerprint(), folder=arguments.folder.name, seed=arguments.seed,
        images=len(subject.dataset), batch=arguments.batch, compared_with=baseline.label,
        points_formula=arguments.points, limit_seconds=arguments.limit,
        submissions=tuple(ranked(judged, points)),
    )  # fmt: skip
    written = {
        arguments.json: document.text(made),
        arguments.csv: view.to_csv(made),
        arguments.html: view.to_html(made),
    }
    if arguments.gradescope is not None:
        written[arguments.gradescope] = view.to_gradescope(made, arguments.most_points)
    output.write(*written.items())
    with keeping.keeping(made, arguments):
        kept = f"judged so far is kept in {journal}: the same command goes on from there"
        report = (*view.report(made), kept)
        output.show(arguments.json, document.text(made), report, arguments.format)
    return 0
