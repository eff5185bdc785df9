"""Compiled code that is kept from one run of the tests to the next, inside the clone.

Kernels are compiled for GPUs to see that compilers take them, and what they take. The same text
for the same architecture gives the same answer, so it is asked for once.
"""

from __future__ import annotations

import hashlib
import pickle
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import cast

from tilewright.files import atomic_write
from tilewright.runtime import nvrtc
from tilewright.views.report import html

KEPT = Path(__file__).resolve().parents[1] / ".pytest_cache" / "compiled"


def compile_cubin(name: str, text: str, architecture: str) -> nvrtc.Compiled:
    """As `nvrtc.compile_cubin`, unless the answer is known; errors are not kept."""
    question = "\n".join([*_compiler(), name, architecture, text])
    file = KEPT / "cubins" / hashlib.sha256(question.encode()).hexdigest()
    try:
        return cast(nvrtc.Compiled, pickle.loads(file.read_bytes()))
    except OSError:
        compiled = nvrtc.compile_cubin(name, text, architecture)
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as handle:
        handle.write(pickle.dumps(compiled))
    return compiled


def vega() -> str:
    """As `html.library`, which takes two seconds of a core."""
    question = version("vl-convert-python") + Path(html.__file__).read_text()
    file = KEPT / f"vega-{hashlib.sha256(question.encode()).hexdigest()}.js"
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        made = html.library()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(file) as handle:
        handle.write(made.encode())
    return made


@cache
def _compiler() -> tuple[str, str]:
    """All else that the answer depends on: NVRTC, and how we call it and read what it says."""
    return version("nvidia-cuda-nvrtc"), Path(nvrtc.__file__).read_text()
