"""Where the rungs come from: the two projects that the ladder retraces, textbooks, or here."""

from __future__ import annotations

from tilewright.results.ladder import RungRecord

COURSE, THESIS, OURS = "the course", "the thesis", "Tilewright"
ORIGINS = {
    "serial": f"{COURSE}'s CPU version; {THESIS}'s serial code",
    "threads": "the rung serial, its loops shared out",
    "im2col": "Chellapilla et al., 2006: convolution as a product of matrices",
    "fused": OURS,
    "direct": f"{COURSE}'s first kernel; {THESIS}'s “if”",
    "direct-reduce": f"{THESIS}'s “if” with reduction",
    "padded": f"{THESIS}'s “pad”",
    "padded-reduce": f"{THESIS}'s “pad” with reduction",
    "shared": f"{COURSE}, optimization 1",
    "constant": f"{COURSE}, optimization 2",
    "unroll-gemm": f"{COURSE}, optimization 3",
    "fused-gemm": f"{COURSE}, optimization 4",
    "channel-atomics": f"{COURSE}, optimization 5",
    "per-layer": f"{COURSE}, optimization 6",
    "tuned": f"{COURSE}, optimization 7",
    "tensor": OURS,
    "network": OURS,
    "torch": "PyTorch, with the libraries inside it",
    "onnxruntime": "ONNX Runtime",
}

LIBRARIES = ("torch", "onnxruntime")


def origin(row: RungRecord) -> str:
    """Of a rung, by its label; one from a file is its author's."""
    unknown = "a library" if row.vendor else "a kernel file"
    return ORIGINS.get(row.rung.partition(" ")[0], unknown)
