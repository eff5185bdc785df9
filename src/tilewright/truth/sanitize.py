"""Races, divergent barriers and accesses outside, at the file's own lines.

PoCL runs the threads of a block one after the other, and a GPU may be lucky: neither notices.
Oclgrind does for OpenCL, NVIDIA's compute-sanitizer for CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tilewright.runtime.device import Device
from tilewright.truth import compute_sanitizer, oclgrind
from tilewright.truth.findings import Sanitized

__all__ = ["Sanitized", "sanitize"]


def sanitize(
    path: Path, device: Device, progress: Callable[[str], None] = lambda doing: None
) -> Sanitized:
    """What is found while the file's kernels compute tiny layers, in processes of their own."""
    if device.kind == "cuda":
        return compute_sanitizer.sanitize(path, device, progress)
    progress("simulating")
    return oclgrind.sanitize(path)
