"""The judge's end of a worker: its process, what it may still do, and why it is no more.

While the judge waits it also takes what the worker prints, answers for what the filter of system
calls holds, and looks at the clock. Whatever a worker does, the wait ends.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from tilewright.judge import WorkerStopped, protocol, sandbox, seccomp
from tilewright.judge.allowance import Allowance
from tilewright.judge.process import (
    Oversized,
    check_folder,
    finish,
    processes_of,
    read,
    sealed_memory,
    stopped,
)
from tilewright.judge.protocol import Answer, Answered, Begin, Request
from tilewright.judge.reasons import (
    LAST_SHOWN,
    Doing,
    death,
    error_of,
    fault,
    last_words,
    unwelcome,
)
from tilewright.runtime.device import Device
from tilewright.terminal import printable

WINDOW = 32 * 2**20  # bytes that data passes through; what is shared lies behind them
LAST_WORDS = 4096
SENT_TOGETHER = 2**14  # bytes of requests
PART = 2**16  # bytes read at once
LOOK_SECONDS = 0.25  # between looks at the folder
HUSH_SECONDS = 5.0  # until all threads stand still
UNASKED = "it sent an answer that nobody asked for"


class Connection:
    """A worker, from its start to its end."""

    def __init__(
        self,
        device: Device,
        native: bool,
        allowance: Allowance,
        kept: Path | None,
        trust: bool,
        shared: int,
    ) -> None:
        sandbox.check(trust)
        self.allowance, self.native = allowance, native
        self.doing = Doing()
        self.reason: str | None = None
        self.sealed = False  # no more processes, once all is compiled
        self.outgoing, self.incoming, self.said = bytearray(), bytearray(), bytearray()
        self.listener: int | None = None
        self.looked = time.monotonic()
        self.scratch = Path(tempfile.mkdtemp(prefix="tilewright-worker-"))
        sandbox.furnish(self.scratch)
        self.folders = [self.scratch]
        if kept is not None:
            kept = kept.resolve()
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folders.append(kept)
        whole = WINDOW + shared
        memory = sealed_memory(whole)
        self.window: NDArray[np.uint8] = np.frombuffer(mmap.mmap(memory, whole), np.uint8)
        theirs_in, self.requests = os.pipe()
        self.answers, theirs_out = os.pipe()
        ours, theirs = socket.socketpair()
        given = (theirs_in, theirs_out, memory, theirs.fileno())
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-B", "-m", "tilewright.judge.worker", *map(str, given)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            pass_fds=given, env=sandbox.environment(self.scratch, kept, native), cwd=self.scratch,
            start_new_session=True,
        )  # fmt: skip
        theirs.close()
        for end in (theirs_in, theirs_out, memory):
            os.close(end)
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        self.ends = [self.requests, self.answers]
        self.finish = weakref.finalize(self, finish, self.process, self.scratch, self.ends)
        for end in (self.requests, self.output, self.answers):
            os.set_blocking(end, False)
        folder = None if kept is None else str(kept)
        begin = Begin(str(device), str(self.scratch), folder, native, whole, allowance)
        os.write(self.requests, protocol.frame(begin))  # a pipe holds more
        with ours:
            self.listener = self._receive_listener(ours)
        if self.listener is not None:
            self.ends.append(self.listener)
        answer = self._wait(allowance.compile_seconds, "starting took longer than")
        if isinstance(answer, protocol.Failed):
            self.stop(fault(answer.words))
        if not isinstance(answer, protocol.Ready):
            self.stop(UNASKED)
        self.ready = answer

    def tell(self, request: Request) -> None:
        """Something that has no answer; sent with others, or before the next that has."""
        self._check()
        self.outgoing += protocol.frame(request)
        if len(self.outgoing) >= SENT_TOGETHER:
            self._send()

    def ask(self, request: Answered, seconds: float, late: str) -> float:
        """Something that is answered; what went wrong since the last time is raised.

        `late` are the words for when there is no answer in time. Returns the answer's seconds.
        """
        self._check()
        self._refuse_unasked()
        self.outgoing += protocol.frame(request)
        try:
            answer = self._wait(seconds, late)
        except WorkerStopped:
            raise
        except BaseException:  # Ctrl-C: an answer that comes now would be taken for another's
            self._end("it was interrupted")
            raise
        if isinstance(answer, protocol.Ready) or answer.ticket != request.ticket:
            self.stop(UNASKED)
        if isinstance(answer, protocol.Failed):
            if answer.kind == "Lost" or (answer.kind == "DeviceFault" and not self.native):
                self.stop(fault(answer.words))
            raise error_of(answer, self.allowance)
        return answer.seconds

    def hush(self) -> None:
        """Wait until every thread of a worker whose kernels are machine code stands still."""
        self._check()
        if self.native and sys.platform == "linux":
            self._let_run(False)
            if not stopped(self.process.pid, HUSH_SECONDS):
                self.stop("it does not stand still")
            if self.process.poll() is not None:
                self._died()

    def seal(self) -> None:
        """All is compiled: from here on there is one process, and there will be no other."""
        self.sealed = True
        if self.listener is not None and processes_of(self.process.pid) > 1:
            self.stop("it has left a process running")

    def stop(self, why: str) -> NoReturn:
        """End the worker, and say why."""
        self._end(why)
        self._check()
        raise AssertionError

    def _check(self) -> None:
        if self.reason is not None:
            raise WorkerStopped(self.reason)

    def _end(self, why: str) -> None:
        if self.reason is None:
            words = last_words(self.said[-LAST_WORDS:])
            last = f" (its last words: {words})" if words else ""
            self.reason = f"the worker was stopped {self.doing}: {why}{last}"
            self.finish()

    def _wait(self, seconds: float, late: str) -> Answer:
        """The next answer. Whatever else the worker does meanwhile is seen to."""
        until = time.monotonic() + seconds
        self._let_run(True)
        while True:
            left = until - time.monotonic()
            if left <= 0:
                self.stop(f"{late} {seconds:g} s")
            self._attend(min(left, LOOK_SECONDS))
            try:
                answer = protocol.answer_in(self.incoming)
            except ValueError as error:
                self.stop(f"it sent what is no answer ({printable(str(error))[:LAST_SHOWN]})")
            if answer is not None:
                self._let_run(False)
                return answer

    def _let_run(self, run: bool) -> None:
        """Where kernels are machine code they run only while they are waited for: nothing is done
        behind the judge's back, to files, to the clock or to what is looked at."""
        if self.native and self.reason is None:
            with suppress(ProcessLookupError):  # its end is seen to elsewhere
                os.killpg(self.process.pid, signal.SIGCONT if run else signal.SIGSTOP)

    def _send(self) -> None:
        self._let_run(True)
        until = time.monotonic() + self.allowance.compile_seconds
        while self.outgoing:
            if time.monotonic() > until:
                self.stop(f"it took no request for {self.allowance.compile_seconds:g} s")
            self._attend(LOOK_SECONDS)
        self._let_run(False)

    def _attend(self, seconds: float) -> None:
        """Wait until something happens, and see to it."""
        poll = select.poll()
        for end in (self.answers, self.output, self.listener):
            if end is not None:
                poll.register(end, select.POLLIN)
        if self.outgoing:
            poll.register(self.requests, select.POLLOUT)
        happened = dict(poll.poll(1000 * seconds))
        if self.requests in happened:
            self._write()
        if self.output in happened:
            self.said += read(self.output)
            del self.said[:-LAST_WORDS]
        if self.answers in happened:
            self.incoming += read(self.answers)
        if self.listener in happened and happened[self.listener] & select.POLLIN:
            self._answer_for(seccomp.receive(self.listener))
        if not self.incoming and self.process.poll() is not None:
            self.said += read(self.output)
            self._died()
        if time.monotonic() - self.looked > LOOK_SECONDS:
            self._look_at_folder()

    def _write(self) -> None:
        with suppress(BrokenPipeError, BlockingIOError):  # its end is seen to elsewhere
            del self.outgoing[: os.write(self.requests, self.outgoing[:PART])]

    def _refuse_unasked(self) -> None:
        """A kernel that writes an answer of its own is found out before it could be taken."""
        self.incoming += read(self.answers)
        if self.incoming:
            self.stop(UNASKED)

    def _answer_for(self, asked: seccomp.Asked | None) -> None:
        if asked is None:
            return
        assert self.listener is not None
        wanted = unwelcome(asked, self.process.pid, self.sealed, self.allowance)
        seccomp.answer(self.listener, asked, allowed=wanted is None)
        if wanted is not None:
            self.stop(f"it asked the system for {wanted}, which no kernel needs")

    def _look_at_folder(self) -> None:
        self.looked = time.monotonic()
        try:
            check_folder(self.folders, self.allowance.folder_bytes, self.allowance.folder_files)
        except Oversized as error:
            self.stop(str(error))

    def _died(self) -> NoReturn:
        assert self.process.returncode is not None
        self.stop(death(self.process.returncode))

    def _receive_listener(self, ours: socket.socket) -> int | None:
        """The other end of the worker's filter, which it sends once it is behind it."""
        ours.settimeout(self.allowance.compile_seconds)
        try:
            _, ends, _, _ = socket.recv_fds(ours, 1, 1)
        except TimeoutError:
            self.stop("it did not start in time")
        if not ends and not sandbox.protection().missing:
            self._attend(LOOK_SECONDS)
            self.stop("it is not behind its filter")
        return ends[0] if ends else None
