"""PoCL on a processor that is newer than its compiler.

PoCL asks LLVM for the processor's name. LLVM 14, which PyPI's PoCL 3.0 has, knows none of AMD's
since 2024 and says `generic`, which its own compiler then refuses for x86: nothing can be built,
and no option says another name. So the name is written over where PoCL keeps it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

UNKNOWN = b"generic\0"
# What code may be made for, the most first; each name fits into the room of the unknown one.
NAMES = {
    b"skx\0": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    b"haswell\0": {"avx2", "fma", "bmi1", "bmi2", "movbe", "abm", "f16c"},
    b"x86-64\0": set[str](),
}
# Of some 1.5 KB in which PoCL describes a device; the name's address is at byte 640 of PoCL 3.0's.
DESCRIPTION = 1024


def name_processor(device: Any) -> None:
    """See to it that a device of PoCL's, its CPU, has a name that its compiler knows."""
    if sys.platform.startswith("linux") and platform.machine() == "x86_64":
        rename(device.int_ptr, known_name(_flags()))


def known_name(flags: set[str]) -> bytes:
    """What PoCL's compiler may call a processor that has these."""
    wanted: set[str] = set()
    for name, more in reversed(NAMES.items()):
        wanted |= more
        if not wanted <= flags:
            break
        best = name
    return best


def rename(description: int, name: bytes) -> None:
    """Write a name over the unknown one, if a description has that."""
    for place, found in pointed_at(description):
        if found == UNKNOWN:
            ctypes.memmove(place, name, len(name))
            return


def pointed_at(description: int) -> Iterator[tuple[int, bytes]]:
    """Where each word of a description points to, and the first bytes there. Not all words are
    addresses: what the system cannot read for us is none."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # then PoCL cannot build a kernel, and what it says is shown
        return
    try:
        words = os.pread(memory, DESCRIPTION, description)
        for (place,) in struct.iter_unpack("=Q", words[: len(words) // 8 * 8]):
            try:
                found = os.pread(memory, len(UNKNOWN), place)
            except (OSError, OverflowError):
                continue
            yield place, found
    finally:
        os.close(memory)


def _flags() -> set[str]:
    """What the processor can do, in Linux's words."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return set(value.split())
    return set()
