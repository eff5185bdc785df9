"""Networks in as many kernels as are chosen, and in as many as would be if only what all of a
network takes counted, in turns (`fuse/cuda/cut.py`).

    python -m benchmarks.cuts --output FILE.json [--networks NAME ...] [--batches 256 1000]

Of all networks and precisions that are cut otherwise then; `--list` says which, without a GPU.
Calls are `tilewright.compile`'s, as CUDA graphs, from bytes on the device. Every sample is kept.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

import numpy as np
from benchmarks.builds import every_network
from benchmarks.peers import graphed, timed

import tilewright
from tilewright.files import atomic_write
from tilewright.fuse.cuda import cut
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.truth.trials import random_parameters

PRECISIONS = ("fp16", "tf32", "fp32")
WAYS = ("by stretches", "by all")
HOPPER = 90
Case = tuple[str, str]


@contextmanager
def cut_by(way: str) -> Iterator[None]:
    """As chosen, or without a look at stretches; nothing is taken from what was kept."""
    _forget()
    if way == WAYS[0]:
        yield
    else:
        with (
            mock.patch.object(cut.planned, "read", lambda question: None),
            mock.patch.object(cut.planned, "keep", lambda question, choice: None),
            mock.patch.object(cut, "_worth_it", lambda *given: 0),
        ):
            yield
    _forget()


def _forget() -> None:
    for each in vars(cut).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()


def kernels(name: str, precision: str, way: str) -> int:
    with cut_by(way):
        return len(cut.cut(every_network()[name].stages, ARITHMETICS[precision], HOPPER))


def differ(case: Case) -> bool:
    return kernels(*case, WAYS[0]) != kernels(*case, WAYS[1])


def compiled(name: str, precision: str, way: str, images: int) -> Any:
    bare = every_network()[name]
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    with cut_by(way):
        return tilewright.compile(network, device="cuda", precision=precision, batch=images)


def _build(case: tuple[str, str, str, int]) -> None:
    compiled(*case)


def measured(name: str, precision: str, images: int, repeats: int) -> dict[str, Any]:
    import torch

    network, calls, outs = every_network()[name], {}, []
    pixels = torch.randint(0, 256, (images, *network.input.shape), device="cuda").to(torch.uint8)
    for way in WAYS:
        call = compiled(name, precision, way, images)
        out = torch.empty((images, *network.output_shape), device="cuda")
        calls[way] = graphed(lambda x, call=call, out=out: call(x, out=out), pixels)
        calls[way]()
        outs.append(out)
    torch.cuda.synchronize()
    assert all(torch.isfinite(out).all() for out in outs)
    return {
        "network": name, "precision": precision, "batch": images,
        "kernels": [kernels(name, precision, way) for way in WAYS],
        "difference": float((outs[0] - outs[1]).abs().max()),
        "seconds": {way: each["samples_seconds"] for way, each in timed(calls, repeats).items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="networks in more kernels and fewer")
    parser.add_argument("--output", type=Path, help="FILE.json")
    parser.add_argument("--networks", nargs="+", default=list(every_network()), metavar="NAME")
    parser.add_argument("--batches", nargs="+", type=int, default=[256, 1000])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--list", action="store_true", help="which are cut otherwise, no more")
    parser.add_argument("--workers", type=int, default=2, help="that compile")
    given = parser.parse_args()
    with ProcessPoolExecutor(given.workers) as pool:
        cases = list(product(given.networks, PRECISIONS))
        cases = [case for case, so in zip(cases, pool.map(differ, cases), strict=True) if so]
        if given.list or not given.output:
            print("\n".join(" ".join(case) for case in cases))
            return
        builds = [(*case, way, n) for case in cases for way in WAYS for n in given.batches]
        list(pool.map(_build, builds))
    found = []
    for (name, precision), images in product(cases, given.batches):
        found.append(row := measured(name, precision, images, given.repeats))
        gc.collect()
        with atomic_write(given.output) as file:
            file.write((json.dumps(found).replace('{"network"', '\n{"network"') + "\n").encode())
        stretches, whole = (1e6 * median(row["seconds"][way]) for way in WAYS)
        print(
            f"{name} {precision} {images}: {row['kernels'][0]} kernels {stretches:.1f} µs, "
            f"{row['kernels'][1]} {whole:.1f} µs, {whole / stretches:.3f}", flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
