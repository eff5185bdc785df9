"""Work shared out over the cores: equal runs of independent jobs, one of them the caller's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise


def share(work: Callable[[int, int], None], jobs: int, cores: int) -> None:
    """Call `work(first, last)` so that all jobs are done, on at most `cores` threads.

    `work` should let go of the GIL; an error in any part is raised here.
    """
    parts = max(1, min(cores, jobs))
    bounds = [jobs * part // parts for part in range(parts + 1)]
    others = [_pool(cores).submit(work, first, last) for first, last in pairwise(bounds[1:])]
    try:
        work(bounds[0], bounds[1])
    finally:
        for other in others:
            other.result()


@cache
def _pool(cores: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=max(1, cores - 1), thread_name_prefix="tilewright")
