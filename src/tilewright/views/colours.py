"""What colours say: what holds something up. Each says it in words, too."""

from __future__ import annotations

from tilewright.limits import ARITHMETIC, FEW_BLOCKS, INDICES, LOADS, MEMORY
from tilewright.views.table import Marked

COMPUTE, DATA, WAITING, BROKEN, GOOD = "green", "blue", "magenta", "red", "bold green"
BAR = "cyan"
# By how the words begin: see `tilewright.profiling.roofline`.
LIMITS = {
    ARITHMETIC: COMPUTE, INDICES: COMPUTE, LOADS: COMPUTE, MEMORY: DATA, "caches": DATA,
    "page faults": DATA, "limited by compute": COMPUTE, "limited by": DATA,
    FEW_BLOCKS: WAITING, "latency": WAITING, "too short": WAITING,
}  # fmt: skip


def limit(words: str) -> str:
    """What holds a kernel up, in the colour of its kind: computing, moving data, or waiting."""
    for start, style in LIMITS.items():
        if words.startswith(start):
            return Marked(words, style)
    return words
