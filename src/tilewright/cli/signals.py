"""SIGTERM and SIGHUP end a command as Ctrl-C does: orderly, leaving nothing half-written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGHUP)


@dataclass
class Stop:
    """Which signal asked the command to end; None for Ctrl-C."""

    signal: signal.Signals | None = None


@contextmanager
def stopped_by_signals() -> Iterator[Stop]:
    """Inside, these signals raise KeyboardInterrupt where Ctrl-C would.

    They do so by way of SIGINT, so that what holds Ctrl-C back for a moment holds them back, too.
    A signal that is ignored (`nohup`), or handled by the program around us, stays so.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def end(number: int, frame: Any) -> None:
        stop.signal = signal.Signals(number)
        signal.raise_signal(signal.SIGINT)

    def ignore(number: int, frame: Any) -> None:
        """A job in the background ignores Ctrl-C, but not the signals that come by way of it."""
        if stop.signal is not None:
            raise KeyboardInterrupt

    taken = [number for number in ENDING if signal.getsignal(number) == signal.SIG_DFL]
    for number in taken:
        signal.signal(number, end)
    background = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    if background:
        signal.signal(signal.SIGINT, ignore)
    try:
        yield stop
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
        if background:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
