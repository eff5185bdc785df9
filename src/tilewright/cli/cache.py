"""Show what Tilewright keeps on disk, or clear compiled kernels and measured ceilings."""

from __future__ import annotations

import argparse

from tilewright.errors import unknown

ACTIONS = ("show", "clear")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", default="show", metavar="show|clear",
        help="show sizes (the default), or delete compiled kernels and measured ceilings; data "
        "sets stay",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    from tilewright.data import catalogue
    from tilewright.fuse.cpu.build import compiled_folder
    from tilewright.profile.ceilings import kept_folder
    from tilewright.store import open_store
    from tilewright.views import units

    if arguments.action not in ACTIONS:
        raise unknown("action", arguments.action, ACTIONS)
    objects = open_store("compiled").entries()
    ceilings = list(kept_folder().glob("*.json"))
    if arguments.action == "clear":
        for path in (*objects, *ceilings):
            path.unlink(missing_ok=True)
        print(f"deleted {len(objects)} compiled kernels from {compiled_folder()}")
        print(f"deleted {len(ceilings)} measured ceilings from {kept_folder()}")
        return 0
    data = [path for path in catalogue.home().rglob("*") if path.is_file()]
    for what, folder, files in (
        ("compiled kernels", compiled_folder(), objects),
        ("measured ceilings", kept_folder(), ceilings),
        ("fetched data", catalogue.home(), data),
    ):
        total = sum(path.stat().st_size for path in files)
        print(f"{what}: {len(files)} files, {units.size(total)} in {folder}")
    return 0
