"""Hand in a kernel to a class, and watch what becomes of it; or get an earlier one again.

The exit code is 0 if the kernel is right, 1 if it is not, and 2 if it could not be judged.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options
from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilewright.classroom.client import Client, Facts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE",
        help="the kernel file (.cl or .cu); headers that it includes go along",
    )  # fmt: skip
    parser.add_argument(
        "--to", metavar="URL",
        help="where the class is served (default: where you logged in, if that is one place)",
    )  # fmt: skip
    parser.add_argument(
        "--task", metavar="NAME", help="which task it is for (default: the only one)"
    )
    parser.add_argument(
        "--private", action="store_true", help="only to see what comes of it: it does not count"
    )
    parser.add_argument(
        "--get", type=options.positive, metavar="N",
        help="show submission N instead, and write its files again",
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER",
        help="where --get writes them (default: submission-N)",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright.classroom.client import Client, Tokens

    if (arguments.file is None) == (arguments.get is None):
        raise TilewrightError("name a file to hand in, or --get N to have an earlier one again")
    if arguments.out is not None and arguments.get is None:
        raise TilewrightError("--out belongs to --get")
    tokens = Tokens()
    url = tokens.only() if arguments.to is None else Client(arguments.to).url
    client = Client(url, tokens.of(url))
    if arguments.get is not None:
        number = arguments.get
        state = client.submission(number)
        _fetch(client, number, state, arguments.out or Path(f"submission-{number}"))
    else:
        files = _files(arguments.file)
        task = arguments.task or _only_task(client)
        number = int(str(client.submit(task, files, not arguments.private)["number"]))
        print(f"accepted as submission {number}: {client.url}/submissions/{number}", flush=True)
    return _watched(client, number)


def _files(path: Path) -> Mapping[str, bytes]:
    """The kernel and what it includes, if the server would take them."""
    from tilewright.classroom.handed_in import MOST_BYTES, kernel_of
    from tilewright.files import check_file
    from tilewright.rungs.own.includes import included_by

    check_file(path)
    try:
        named = {path.name: path} | {name: path.parent / name for name in included_by(path)}
        if sum(each.stat().st_size for each in named.values()) > MOST_BYTES:
            raise TilewrightError(
                f"{path} is larger than {MOST_BYTES:,} bytes with what it includes"
            )
        files = {name: each.read_bytes() for name, each in named.items()}
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    kernel_of(files)
    return files


def _only_task(client: Client) -> str:
    names = [str(each["name"]) for each in client.tasks() if not each["closed"]]
    if len(names) != 1:
        raise TilewrightError(f"--task is needed: {', '.join(names) or 'no task is open'}")
    return names[0]


def _fetch(client: Client, number: int, state: Facts, folder: Path) -> None:
    """All of its files, in a folder that is not there yet: nobody's work is overwritten."""
    from tilewright.classroom.handed_in import kernel_of

    names = state.get("files")
    if not isinstance(names, list):
        raise TilewrightError(f"{client.url} is no server of a class")
    files = {str(name): client.file(number, str(name)) for name in names}
    kernel_of(files)  # names that lead elsewhere are no server's to choose
    try:
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(folder / name) as file:
                file.write(content)
    except FileExistsError as error:
        raise TilewrightError(f"{folder} is there already, and stays as it is") from error
    except OSError as error:
        raise TilewrightError(f"cannot write {folder}: {reason(error)}") from error
    print(f"wrote {', '.join(str(folder / name) for name in files)}")


def _watched(client: Client, number: int) -> int:
    from tilewright.cli import output
    from tilewright.views.submission import said, verdict

    state: Facts = {}
    with _telling() as tell:
        for state in client.watch(number, lambda lost: tell("away", f"{lost}; waiting for it")):
            tell(str(state["state"]), said(state))
    output.tables(verdict(state, client.url))
    judged = state.get("judged")
    assert isinstance(judged, dict)
    return 0 if judged.get("outcome") == "right" else 1


@contextmanager
def _telling() -> Iterator[Callable[[str, str], None]]:
    """On a terminal one line that follows every step; elsewhere, where lines stay, one line for
    each state that it comes to."""
    import sys

    from tilewright.views.console import Screen

    screen = Screen(file=sys.stderr, highlight=False, markup=False, emoji=False)
    told = ""
    with screen.status("") as status:

        def tell(state: str, words: str) -> None:
            nonlocal told
            if state != told and not screen.is_terminal:
                screen.print(words)
            status.update(words)
            told = state

        yield tell
