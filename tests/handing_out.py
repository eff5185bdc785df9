"""Which tests go to a worker together.

pytest-xdist hands out tests one by one, but for those of a group: then each worker makes what the
tests of a file share, and there is a message for each of thousands of tests that take milliseconds,
for which all that were sent before are counted again. Here a few of a file go together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

QUICK_TOGETHER = 50
SLOW_TOGETHER = 10


def together(names: Iterable[str], is_slow: Callable[[str], bool]) -> dict[str, str]:
    """Every test, and the first of those that it goes with: of its file and beside it."""
    found: dict[str, str] = {}
    first, left, of = "", 0, ("", False)
    for name in names:
        here = name.partition("::")[0], is_slow(name)
        if not left or here != of:
            first, of = name, here
            left = SLOW_TOGETHER if here[1] else QUICK_TOGETHER
        found[name] = first
        left -= 1
    return found


def scheduler(config: pytest.Config, log, is_slow: Callable[[str], bool]):
    """pytest-xdist's of groups, with parts of files as groups; in the order of collection."""
    from xdist.scheduler.loadgroup import LoadGroupScheduling

    class Together(LoadGroupScheduling):
        firsts: dict[str, str] | None = None

        def _split_scope(self, nodeid):
            if self.firsts is None:
                self.firsts = together(self.collection, is_slow)
            group = super()._split_scope(nodeid)
            return group if group != nodeid else self.firsts[nodeid]

    config.option.loadscopereorder = False  # the order is that of the tests
    return Together(config, log)
