"""Kernels of our own built by PoCL in half of the time.

For every program PoCL reads the declarations of all functions that OpenCL has, a megabyte: half of
what a small kernel takes to compile, and a ladder has hundreds. A program made from the dialect's
prelude needs a dozen of them, which it gets here; its code is the same.

Kernels in users' files are built as ever: `exp` of a double, which is not declared here, would
quietly become that of a float.
"""

from __future__ import annotations

from typing import Any

# The header's own guard: the header is taken as read.
WITHOUT_HEADER = "-D_OPENCL_H_"
DECLARATIONS = """
#define OPENCL_FUNCTION __attribute__((overloadable))
size_t OPENCL_FUNCTION __attribute__((const)) get_local_id(uint);
size_t OPENCL_FUNCTION __attribute__((const)) get_group_id(uint);
float OPENCL_FUNCTION __attribute__((const)) fma(float, float, float);
float OPENCL_FUNCTION __attribute__((const)) tanh(float);
float OPENCL_FUNCTION __attribute__((const)) exp(float);
float OPENCL_FUNCTION __attribute__((const)) erfc(float);
float OPENCL_FUNCTION __attribute__((const)) log1p(float);
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


def build(cl: Any, context: Any, text: str, options: str) -> Any:
    """A program; in full where this is not enough, as with a PoCL that keeps its header otherwise,
    or with an error, so that the words about it are the usual ones.
    """
    try:
        return cl.Program(context, DECLARATIONS + text).build(f"{options} {WITHOUT_HEADER}")
    except cl.RuntimeError:
        return cl.Program(context, text).build(options)
