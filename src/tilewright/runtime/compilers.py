"""Processes that compile CUDA kernels side by side, as many as there are cores.

They are started when there is something for them to do, and end when there has been nothing for a
while: each holds a compiler of 100 MB.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from tilewright.errors import TilewrightError
from tilewright.runtime import nvrtc_worker
from tilewright.runtime.nvrtc_worker import Answer

IDLE_SECONDS = 5.0
Made = TypeVar("Made")
# A kernel's name, its text, and the architecture that it is for.
Question = tuple[str, str, str]
Translate = Callable[[str, str, str], Answer]


class Process:
    """A compiler in a process of its own."""

    def __init__(self) -> None:
        self.running: subprocess.Popen[bytes] | None = None

    def translate(self, name: str, text: str, architecture: str) -> Answer:
        running = self.running = self.running or self._start()
        assert running.stdin and running.stdout
        answer = nvrtc_worker.ask(running.stdin, running.stdout, (name, text, architecture))
        if answer is None:
            code = running.wait()
            self.end()
            raise TilewrightError(
                f"CUDA compiler, {name} for {architecture}: its process ended ({code})"
            )
        return answer

    def end(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.kill()
            running.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        # Not from the file's own folder (-P), where a torch.py is not the one that is meant.
        command = [sys.executable, "-P", nvrtc_worker.__file__]
        started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert started.stdin
        started.stdin.write(json.dumps(sys.path).encode() + b"\n")
        return started


class Pool(Generic[Made]):
    """Threads, each with a process: they call `work` with a way to compile, and a question."""

    def __init__(
        self,
        work: Callable[[Translate, Question], Made],
        most: int,
        process: Callable[[], Process] = Process,
    ) -> None:
        self.work, self.most, self.process = work, most, process
        self.waiting: queue.Queue[tuple[Question, Future[Made]]] = queue.Queue()
        self.lock = threading.Lock()
        self.processes: set[Process] = set()
        self.idle = 0
        self.ended = False

    def submit(self, question: Question) -> Future[Made]:
        future: Future[Made] = Future()
        with self.lock:
            self.waiting.put((question, future))
            if self.waiting.qsize() > self.idle and len(self.processes) < self.most:
                process = self.process()
                self.processes.add(process)
                # One that is at work does not keep Python from ending.
                threading.Thread(target=self._serve, args=(process,), daemon=True).start()
        return future

    def end(self) -> None:
        """Whatever is at work, or waits for its turn, is of no use any more."""
        self.ended = True
        for process in list(self.processes):
            process.end()

    def _serve(self, process: Process) -> None:
        while (given := self._next(process)) is not None:
            question, future = given
            if self.ended or not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(self.work(process.translate, question))
            except BaseException as error:  # it is raised where the answer is asked for
                future.set_exception(error)

    def _next(self, process: Process) -> tuple[Question, Future[Made]] | None:
        with self.lock:
            self.idle += 1
        try:
            return self.waiting.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self.lock:
                # Put there just now, by one who counted on us.
                if not self.waiting.empty():
                    return self.waiting.get_nowait()
                self.processes.discard(process)
            process.end()
            return None
        finally:
            with self.lock:
                self.idle -= 1
