"""Kernel files to start from: working and commented, like one of the ladder's rungs."""

from __future__ import annotations

import re
from importlib.resources import files

from tilewright.errors import TilewrightError, unknown
from tilewright.rungs.gpu.design import text_of
from tilewright.rungs.own.header import NAME
from tilewright.runtime.dialect import Language

# A rung's kernels, in their order; how they are launched is in `starts/`.
LIKE = {
    "direct": (),  # a file of its own in each language
    "direct-reduce": ("reduce.cl",),
    "padded": ("pad.cl", "direct.cl"),
    "padded-reduce": ("pad.cl", "reduce.cl"),
    "shared": ("shared.cl",),
    "constant": ("direct.cl",),
    "unroll-gemm": ("unroll.cl", "gemm.cl"),
    "fused-gemm": ("gemm.cl",),
    "channel-atomics": ("fill.cl", "atomics.cl"),
    "per-layer": ("gemm.cl",),
    "tuned": ("pack.cl", "tuned.cl"),
}
# What comes after a kernel, for the next.
AFTER = {"pad.cl": "from_here_padded.cl"}
# Kernels of our own among them: what a rung does in Python.
OWN = ("pack.cl",)
# IMAGES is the number of images in a header.
RENAMED = {"TW_IMAGES": "TW_TOGETHER"}
DIRECT: dict[Language, str] = {
    "dialect": "direct.cl",
    "cuda": "direct.cu",
    "opencl": "direct_opencl.cl",
}


def start(name: str, like: str, language: Language) -> str:
    """The text of a kernel file of that name."""
    from tilewright.rungs import NAMES

    if not NAME.fullmatch(name):
        raise TilewrightError(f"{name!r}: a kernel's name has small letters, digits and dashes")
    if name in NAMES:
        raise TilewrightError(f"{name!r} is the name of a rung on the ladder")
    if like in NAMES and like not in LIKE:
        raise TilewrightError(
            f"--like {like}: no kernel file can say what that rung does; there is a start like "
            f"{', '.join(LIKE)}"
        )
    if like not in LIKE:
        raise TilewrightError(f"--like {like}: {unknown('rung', like, LIKE)}")
    if language != "dialect" and like != "direct":
        raise TilewrightError(
            f"--like {like} is in the dialect, which runs on CUDA and OpenCL; plain CUDA C or "
            "OpenCL C starts like direct"
        )
    text = _file(DIRECT[language]) if like == "direct" else _of_rung(like)
    entry = re.sub(r"\W", "_", name)
    entry = entry if entry[0].isalpha() else f"k{entry}"
    return text.replace("@name@", name).replace("@entry@", entry)


def _of_rung(like: str) -> str:
    """A header, and the kernels of a rung, one after the other."""
    header = _file(f"{like.replace('-', '_')}.toml").replace(
        "@padded@\n", _file("padded_part.toml")
    )
    entries = re.findall(r'^entry = "(.*)"$', header, re.MULTILINE)
    texts = [_renamed(_file(name) if name in OWN else text_of(name)) for name in LIKE[like]]
    if len(texts) > 1:
        texts = [t.replace("TW_NAME", entry) for t, entry in zip(texts, entries, strict=True)]
    # Each kernel's own macros end with it.
    ends = ["".join(f"#undef {macro}\n" for macro in _macros(text)) for text in texts[:-1]]
    ends = [end + _after(name) for end, name in zip(ends, LIKE[like], strict=False)]
    body = "\n".join(text + end for text, end in zip(texts, [*ends, ""], strict=True))
    return f"/* tilewright\n{header}*/\n\n{body}"


def _after(kernel: str) -> str:
    return f"\n{_file(AFTER[kernel])}" if kernel in AFTER else ""


def _renamed(text: str) -> str:
    for old, new in RENAMED.items():
        text = text.replace(old, new)
    return text


def _macros(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"^#define (\w+)", text, re.MULTILINE)))


def _file(name: str) -> str:
    return (files("tilewright.rungs.own") / "starts" / name).read_text()
