"""Work shared out over the cores: equal runs of independent jobs, one for each core.

The workers stay on their cores. Woken beside a caller that goes on computing, a thread can wait
for milliseconds before the system moves it to a core that is free: for 100 images of cifar10 on 2
cores, computed by the fused kernel on such threads, a median of 7.7 ms, against 5.4 ms this way
(2026-11-15).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise


def share(work: Callable[[int, int], None], jobs: int, cores: int) -> None:
    """Call `work(first, last)` so that all jobs are done, on at most `cores` threads.

    `work` should let go of the GIL; an error in any part is raised here.
    """
    parts = max(1, min(cores, jobs))
    if parts == 1:
        work(0, jobs)
        return
    bounds = [jobs * part // parts for part in range(parts + 1)]
    running = [_pool(cores).submit(work, first, last) for first, last in pairwise(bounds)]
    for part in running:
        part.result()


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    places = iter(sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [])
    return ThreadPoolExecutor(cores, "tilewright", initializer=_stay, initargs=(places,))


def _stay(places: Iterator[int]) -> None:
    """Keep the calling thread on the next core, where the system lets it choose."""
    place = next(places, None)
    if place is not None:
        os.sched_setaffinity(0, {place})
