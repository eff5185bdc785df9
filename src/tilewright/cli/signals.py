"""SIGTERM and SIGHUP end a command as Ctrl-C does: orderly, leaving nothing half-written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a signal like it.

    When a plain KeyboardInterrupt has passed through code that `exec` runs (dataclasses do, on
    import), Python ends itself by SIGINT, although the exception was caught and a code returned.
    """


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
    usual = signal.getsignal(signal.SIGINT)

    def end(number: int, frame: FrameType | None) -> None:
        stop.signal = signal.Signals(number)
        signal.raise_signal(signal.SIGINT)

    def interrupt(number: int, frame: FrameType | None) -> None:
        # A job in the background ignores Ctrl-C, but not the signals that come by way of it.
        if usual != signal.SIG_IGN or stop.signal is not None:
            raise Interrupted

    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        number: end for number in ENDING if signal.getsignal(number) == signal.SIG_DFL
    }
    if usual in (signal.default_int_handler, signal.SIG_IGN):
        handlers[signal.SIGINT] = interrupt
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
