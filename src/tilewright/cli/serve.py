"""Serve a class: students hand in kernels, workers judge them, pages show who stands where."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.cli import options
from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.classroom.course import Course
    from tilewright.classroom.store import Store
    from tilewright.classroom.workers import Pool

MISSING = "a class needs a web server: pip install 'tilewright[class]' ({})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--class", dest="folder", type=Path, required=True, metavar="FOLDER",
        help="the class: class.toml, tasks/*.toml, roster.csv",
    )  # fmt: skip
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS",
        help="where to listen (default: %(default)s, this machine alone; a proxy with TLS before "
        "it lets others in)",
    )  # fmt: skip
    parser.add_argument(
        "--port", type=_port, default=8765, metavar="N", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--devices", nargs="+", type=options.device, default=(), metavar="NAME",
        help="what to judge on, a worker each, as in cuda:0 cuda:1 (default: the devices that "
        "tasks name, the first of a kind)",
    )  # fmt: skip
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="judge by the workers of a Ray cluster, a GPU each: its address, or auto for the one "
        "that this machine is in",
    )  # fmt: skip


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no port, which is from 0 to 65535")
    return int(text)


def main(arguments: argparse.Namespace) -> int:
    try:
        from tilewright.classroom.web.server import serve
    except ImportError as error:
        raise TilewrightError(MISSING.format(error)) from error
    from tilewright.classroom.client import in_the_clear
    from tilewright.classroom.locks import opened
    from tilewright.terminal import say_once

    with opened(arguments.folder) as (course, store):
        pool = pool_of(course, store, arguments)

        def ready(address: str) -> None:
            print(f"{course.title}: {address} (Ctrl-C ends it; what waits is kept)", flush=True)
            if in_the_clear(address):
                say_once("others can reach it, and without encryption: a proxy with TLS is safer")

        with suppress(KeyboardInterrupt):  # uvicorn ends in order, and passes it on
            serve(course, store, pool, arguments.host, arguments.port, ready)
    print("stopped: what waits is judged when the class is served again")
    return 0


def pool_of(course: Course, store: Store, arguments: argparse.Namespace) -> Pool:
    """Who judges: processes of this machine, one a device, or workers of a cluster."""
    if arguments.ray is not None:
        from tilewright.cluster.pool import RayPool

        return RayPool(course, store, arguments.ray, arguments.devices)
    from tilewright.classroom.workers import LocalPool

    return LocalPool(course, store, arguments.devices)
