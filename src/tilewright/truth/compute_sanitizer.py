"""What NVIDIA's compute-sanitizer finds in a kernel file, on the GPU itself.

Four of its tools watch the file's kernels, each in a process of its own: accesses outside
(memcheck), races in shared memory (racecheck), barriers that not all threads reach (synccheck),
global memory that is read before anybody has written it (initcheck). Machine code of a kernel file
carries its lines, and reports are at them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tilewright.rungs.own.header import KernelFile
from tilewright.rungs.own.rung import read, shown_name
from tilewright.runtime.device import Device
from tilewright.truth.findings import MOST, Finding, Sanitized, lines_of
from tilewright.truth.watched import DONE

PROGRAM = "compute-sanitizer"
USUAL = "/usr/local/cuda/bin"
MISSING = (
    f"no {PROGRAM} on the PATH or in {USUAL}: it is part of NVIDIA's CUDA toolkit (conda install "
    "-c nvidia cuda-sanitizer-api has it alone)"
)
LOOKS_FOR = (
    "nothing outside, no race in shared memory, no divergent barrier, nothing read that nobody has "
    "written"
)
OPTIONS = (
    *("--target-processes", "application-only", "--report-api-errors", "no"),
    *("--show-backtrace", "device", "--print-limit", "1000"),
)
# Allocations lie apart, so that what is past the end of one is not in the next.
TOOLS = {"memcheck": ("--padding", "65536"), "racecheck": (), "synccheck": (), "initcheck": ()}
SECONDS = 120  # for each tool
MARK = "========="  # before each line that is the sanitizer's own
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: ")
# What a report begins with.
ACCESS = re.compile(r"Invalid __(\w+)__ (\w+) of size \d+")
RACE = re.compile(r"(?:(?:Error|Warning): )?Race reported between", re.IGNORECASE)
BARRIER = re.compile(r"Barrier error detected\.?(.*)")
UNINITIALISED = re.compile(r"Uninitialized __\w+__ memory read")
# `in mine.cu:12`, and as older versions have it, `in /home/me/mine.cu:12:mine(float*)`.
AT_LINE = re.compile(r" in (?:\S*/)?([^\s/:]+):(\d+)")
PLACES = {"shared": " in shared memory", "local": " in a thread's own memory"}


def sanitize(path: Path, device: Device, progress: Callable[[str], None]) -> Sanitized:
    """All tools, one after the other; each sees the file's kernels from the start."""
    found = partial(Sanitized, PROGRAM, LOOKS_FOR)
    program = shutil.which(PROGRAM) or shutil.which(PROGRAM, path=USUAL)
    if program is None:
        return found(problem=MISSING)
    file = read(path)
    findings: dict[Finding, None] = {}
    for tool, more in TOOLS.items():
        progress(f"watching with {tool}")
        watched = [sys.executable, "-m", "tilewright.truth.watched", str(path), str(device)]
        try:
            said = _run([program, "--tool", tool, *OPTIONS, *more, *watched]).split("\n")
        except subprocess.TimeoutExpired:
            return found(problem=f"{tool} took longer than {SECONDS} s")
        own = [line.removeprefix(MARK) for line in said if line.startswith(MARK)]
        reports = _findings(own, file)
        findings.update(dict.fromkeys(reports))
        # Kernels that touch what is not there end the process; others must have come to the end.
        whole = any(map(SUMMARY.search, own)) and DONE in said
        if not whole and not findings:
            words = [line.strip(" =") for line in said if line.strip(" =")]
            last = next((line for line in reversed(words) if not SUMMARY.search(line)), "no reason")
            return found(problem=f"{tool} gave up: {last[:200]}")
    return found(tuple(findings)[:MOST])


def _run(command: Sequence[str]) -> str:
    """What a program prints. What it has started ends with it: the sanitizer alone would leave a
    process behind that hangs."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        try:
            process.wait(SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        return output.read().decode(errors="replace")


def _findings(own: list[str], file: KernelFile) -> Iterator[Finding]:
    """What is said of the file's kernels, known by its lines or their names; which thread and
    address it was is left out, so that few remain."""
    shown = shown_name(file.path)
    for block in _blocks(own):
        text = "\n".join(block)
        numbers = [int(line) for name, line in AT_LINE.findall(text) if name == shown]
        if numbers or any(re.search(rf"\b{each.name}\b", text) for each in file.kernels):
            lines = lines_of(file.text, file.parts, numbers)
            yield Finding(_words(block[0], text), lines)


def _blocks(own: list[str]) -> Iterator[list[str]]:
    """Reports: a line that says what it is, and those below it that are further in."""
    block: list[str] = []
    for line in (*own, ""):
        text = line.strip()
        if block and text and line.startswith("  "):
            block.append(text)
            continue
        if block:
            yield block
        begins = any(kind.match(text) for kind in (ACCESS, RACE, BARRIER, UNINITIALISED))
        block = [text] if begins else []


def _words(head: str, text: str) -> str:
    if access := ACCESS.match(head):
        verb = {"read": "reads", "write": "writes"}.get(access[2].lower(), "changes")
        wrong = "at an address that is not aligned" if "misaligned" in text else "outside"
        where = PLACES.get(access[1], "")
        return f"invalid {access[2].lower()}{where}: {verb} {wrong}"
    if RACE.match(head):
        if "Read access" in text:
            return (
                "read-write data race in shared memory: one thread reads what another writes, and "
                "nothing makes them wait"
            )
        return "write-write data race in shared memory: two threads write to the same place"
    if barrier := BARRIER.match(head):
        if "Divergent" in barrier[1]:
            group = "warp" if "warp" in barrier[1] else "block"
            return f"divergence: a barrier that not all threads of a {group} reach"
        return f"barrier error: {barrier[1].strip(' .').lower()}"
    return "uninitialised read: reads global memory that nobody has written"
