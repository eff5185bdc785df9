"""List the data sets, fetch the public ones, or check what is there."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options, output
from tilewright.errors import TilewrightError, unknown

if TYPE_CHECKING:
    from tilewright.views.table import Format

ACTIONS = ("list", "fetch", "check")
MOST_CLASSES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="list", metavar="list|fetch|check",
        help="list what is known (the default), fetch by name, or check a name or path",
    )  # fmt: skip
    parser.add_argument(
        "what", nargs="?", metavar="NAME|PATH", help="cifar10 or fashion-mnist; check takes a path"
    )
    options.add_format(parser)


def main(arguments: argparse.Namespace) -> int:
    if arguments.action not in ACTIONS:
        raise unknown("action", arguments.action, ACTIONS)
    if arguments.action == "list":
        return _list(arguments.format)
    if arguments.what is None:
        raise TilewrightError(f"name what to {arguments.action}: `tilewright data` lists the names")
    return _fetch(arguments.what) if arguments.action == "fetch" else _check(arguments.what)


def _list(shape: Format) -> int:
    from tilewright.data import catalogue
    from tilewright.views import console
    from tilewright.views.table import table

    rows = table("Data sets", "name", "what", "where")
    kept = catalogue.home()
    for entry in catalogue.ENTRIES.values():
        found = entry.locate(kept)
        if not found:
            where = f"not here: tilewright data fetch {entry.fetched_as}"
        else:
            where = "shipped with Tilewright" if entry.fetched_as is None else str(found[0].parent)
        rows.add_row(entry.name, entry.about, where)
    output.tables([rows], shape)
    if shape == "text":
        words = f"\nFetched data sets are kept in {kept}."
        console.output().print(words, soft_wrap=True)
    return 0


def _fetch(name: str) -> int:
    from tilewright.data import catalogue, fetch
    from tilewright.views import console

    if name not in fetch.DOWNLOADS:
        raise unknown("data set to fetch", name, fetch.DOWNLOADS)
    folder = catalogue.home() / name
    with console.progress_bar(download=True) as bar:
        tasks = {d.name: bar.add_task(d.name, total=None) for d in fetch.DOWNLOADS[name]}

        def progress(file: str, done: int, total: int) -> None:
            bar.update(tasks[file], completed=done, total=total or None)

        fetch.fetch(folder, progress, fetch.DOWNLOADS[name])
    console.output().print(f"{name} is in {folder}", soft_wrap=True)
    return 0


def _check(what: str) -> int:
    import numpy as np

    from tilewright.data import catalogue
    from tilewright.model.layers import dimensions
    from tilewright.views import console

    path = Path(what)
    if what in catalogue.ENTRIES:
        dataset = catalogue.open_named(what)
    elif path.exists():
        dataset = catalogue.open_stored(path)
    elif len(path.parts) > 1 or path.suffix:
        raise TilewrightError(f"data {what!r} does not exist")
    else:
        raise unknown("data set", what, catalogue.ENTRIES)
    kind = "uint8 pixels" if dataset.images.dtype == np.uint8 else "float32 values"
    lines = [
        f"{what}: {len(dataset):,} images of {dimensions(dataset.shape)}, {kind}",
        f"read from {dataset.source}",
    ]
    if dataset.labels is None:
        lines.append("no labels")
    else:
        labels, counts = np.unique(dataset.labels, return_counts=True)
        lines.append(f"{len(labels)} classes, labels {labels[0]} to {labels[-1]}")
        shown = " ".join(map(str, counts[:MOST_CLASSES]))
        more = " ..." if len(counts) > MOST_CLASSES else ""
        lines.append(f"images in each: {shown}{more}")
    console.output().print("\n".join(lines), soft_wrap=True)
    return 0
