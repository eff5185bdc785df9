"""A worker as the system sees it: its memory, its threads and processes, its folder, its end."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

GONE_SECONDS = 30.0  # until a process that is killed is gone
GLANCE_SECONDS = 50e-6
PART = 2**16  # bytes read at once
PROCESSES = Path("/proc")


class Oversized(Exception):
    """More files, or larger ones, than a worker may have."""


def sealed_memory(size: int) -> int:
    """Memory for two processes, neither of which can take it away from the other."""
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryFile() as file:
            file.truncate(size)
            return os.dup(file.fileno())
    memory = os.memfd_create("tilewright", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(memory, size)
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(memory, fcntl.F_ADD_SEALS, seals)
    return memory


def read(end: int) -> bytes:
    """What there is, without waiting."""
    try:
        return os.read(end, PART)
    except BlockingIOError:
        return b""


def threads_of(process: int) -> int:
    with suppress(OSError):
        return sum(1 for _ in (PROCESSES / str(process) / "task").iterdir())
    return 0


def processes_of(group: int) -> int:
    """How many belong to a group."""
    count = 0
    for entry in PROCESSES.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # gone meanwhile
                count += os.getpgid(int(entry.name)) == group
    return count


def cpu_seconds(process: int) -> float:
    """That a process has used so far; 0 of one that is gone."""
    with suppress(OSError):
        # The name may hold anything; the times are the 12th and 13th field behind it.
        after = (PROCESSES / str(process) / "stat").read_text().rpartition(")")[2].split()
        return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def stopped(process: int, seconds: float) -> bool:
    """Whether a child stands still, with all its threads, or is gone, within some time."""
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    until = time.monotonic() + seconds
    while os.waitid(os.P_PID, process, options) is None:
        if time.monotonic() > until:
            return False
        time.sleep(GLANCE_SECONDS)
    return True


def check_folder(folders: Iterable[Path], most_bytes: int, most_files: int) -> None:
    """Oversized if there is more below, or where that is too deep to be seen."""
    total = files = 0
    inside = [str(folder) for folder in folders]
    while inside:
        try:
            with os.scandir(inside.pop()) as entries:
                for entry in entries:
                    files += 1
                    if files > most_files:
                        raise Oversized(f"it made more than {most_files:,} files")
                    if entry.is_dir(follow_symlinks=False):
                        inside.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Oversized(f"it made folders that cannot be looked into ({error})") from error
    if total > most_bytes:
        raise Oversized(f"it wrote more than {most_bytes:,} bytes of files")


def finish(process: subprocess.Popen[bytes], folder: Path, ends: list[int]) -> None:
    """Kill the worker and whatever it has started, which cannot leave its group, and clean up."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # a driver may hold on to it
        process.wait(timeout=GONE_SECONDS)
    assert process.stdout is not None
    process.stdout.close()
    for end in ends:
        os.close(end)
    remove(folder)


def remove(folder: Path) -> None:
    """Delete a folder however deep it is: what lies deeper is moved up first."""
    found = True
    while found:
        found = False
        for entry in list(folder.iterdir()):
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            entry.chmod(0o700)
            for inner in list(entry.iterdir()):
                inner.rename(folder / secrets.token_hex(16))
                found = True
            entry.rmdir()
    folder.rmdir()
