"""Kernels of one's own: a file with device code, and a header that says how it is launched."""

from tilewright.rungs.own.header import KernelFile, parse
from tilewright.rungs.own.rung import load

__all__ = ["KernelFile", "load", "parse"]
