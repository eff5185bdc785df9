"""Code of strangers: compiled and launched in a worker process that can do no harm, judged here.

On PoCL a kernel is machine code of the process it runs in. So nothing of a user's file ever runs in
the process that times and judges: `isolated` makes a rung whose kernels run in a worker, behind the
same contract as any runtime. docs/judge.md says what is protected and what is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError

if TYPE_CHECKING:
    from tilewright.judge.allowance import Allowance
    from tilewright.rungs.rung import Rung


class WorkerStopped(TilewrightError):
    """The worker is no more, and why: a crash, a limit, or something it should not have done."""


def isolated(
    rung: Rung, allowance: Allowance | None = None, kept: Path | None = None, trust: bool = False
) -> Rung:
    """The rung with its kernels in a worker of its own, started when it is first opened.

    `kept` is a folder for what PoCL compiles, so that the next worker need not: give it to the same
    source only, as whoever ran before may have written anything there. Where the system cannot
    protect its user, `trust` must say that the kernels are known to be harmless.
    """
    from tilewright.judge.remote import isolate

    return isolate(rung, allowance, kept, trust)
