"""PoCL's programs without the declarations that they have no use for.

For every program PoCL reads the declarations of all functions that OpenCL has, a megabyte: half of
the time of a small kernel. Here a program gets those that the dialect's prelude needs; the kernel
is the same. Where it computes next to nothing, `not_optimised` leaves out what makes it fast, too:
54 kernels of a ladder take 6 seconds of a core instead of 20 (PoCL 3.0, 2026-11-16).

What this is not enough for is built as a user's is: a program with an error, so that the words are
those that a user sees; one that calls another function; any, with a PoCL that keeps its header
otherwise. Processes that tests start build as a user's do, but for the judge's workers where a test
asks for `quick_workers`.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.runtime import opencl
from tilewright.runtime.pocl import is_pocl

# The header's own guard: the header is taken as read.
QUICK = "-D_OPENCL_H_"
NOT_OPTIMISED = f"{QUICK} -cl-opt-disable"
DECLARATIONS = """
#define OPENCL_FUNCTION __attribute__((overloadable))
size_t OPENCL_FUNCTION __attribute__((const)) get_local_id(uint);
size_t OPENCL_FUNCTION __attribute__((const)) get_group_id(uint);
float OPENCL_FUNCTION __attribute__((const)) fma(float, float, float);
float OPENCL_FUNCTION __attribute__((const)) tanh(float);
float OPENCL_FUNCTION __attribute__((const)) exp(float);
float4 OPENCL_FUNCTION vload4(size_t, const __global float *);
float4 OPENCL_FUNCTION vload4(size_t, const __local float *);
void OPENCL_FUNCTION vstore4(float4, size_t, __global float *);
void OPENCL_FUNCTION vstore4(float4, size_t, __local float *);
uint OPENCL_FUNCTION atomic_cmpxchg(volatile __global uint *, uint, uint);
void OPENCL_FUNCTION __attribute__((convergent)) barrier(uint);
#ifndef INFINITY
#define INFINITY (__builtin_inff())
#endif
#line 1
"""
in_full = opencl._program
asked_for = QUICK


def build(cl, context, text, options, quick=QUICK):
    try:
        return cl.Program(context, DECLARATIONS + text).build(options=f"{options} {quick}")
    except cl.RuntimeError:
        return cl.Program(context, text).build(options=options)


def _program(index, text):
    if not is_pocl(opencl.devices()[index]):
        return in_full(index, text)
    return _quick(index, text, asked_for)


# A stand-in for pyopencl takes the place that users have.
_program.__wrapped__ = in_full.__wrapped__


@lru_cache(maxsize=1000)
def _quick(index, text, quick):
    return build(opencl.load(), opencl._context(index), text, opencl.BUILD_OPTIONS, quick)


def install():
    opencl._program = _program
