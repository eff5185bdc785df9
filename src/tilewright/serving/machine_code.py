"""Machine code that Python calls as it calls modules written in C: nothing is converted between.

A function of C that ctypes calls costs Python a fifth of a microsecond, and as much again for each
two of its arguments. Functions made here take Python's own objects, in an array.
"""

from __future__ import annotations

from ctypes import (
    Structure,
    addressof,
    c_char_p,
    c_int,
    c_void_p,
    cast,
    py_object,
    pythonapi,
)
from functools import cache
from threading import RLock
from typing import Any

import llvmlite.binding as llvm

from tilewright.fuse.cpu.build import compile_code, compiled_folder, host

FAST_CALL = 0x80  # METH_FASTCALL: arguments come as an array
# Of two threads that come first one makes all of it: what a cache is given twice it drops once, and
# with it code that the other one calls.
MAKING = RLock()
# Of Python itself, with their types; machine code declares all of them.
PYTHON = {
    "PyLong_AsVoidPtr": "ptr (ptr)",
    "PyLong_FromLong": "ptr (i64)",
    "PyLong_FromVoidPtr": "ptr (ptr)",
    "PyBytes_FromStringAndSize": "ptr (ptr, i64)",
    "PyTuple_Pack": "ptr (i64, ...)",
    "PyCapsule_IsValid": "i32 (ptr, ptr)",
    "PyCapsule_GetPointer": "ptr (ptr, ptr)",
    "Py_DecRef": "void (ptr)",
    "PyErr_Clear": "void ()",
    "PyErr_Occurred": "ptr ()",
    "PyEval_SaveThread": "ptr ()",
    "PyEval_RestoreThread": "void (ptr)",
}


class _Method(Structure):
    """PyMethodDef."""

    _fields_ = (("name", c_char_p), ("code", c_void_p), ("flags", c_int), ("text", c_char_p))


@cache
def _engine(code: str) -> llvm.ExecutionEngine:
    """Owns the code, which is used as long as the process lives."""
    declared = []
    for name, kind in PYTHON.items():
        llvm.add_symbol(name, cast(pythonapi[name], c_void_p).value)
        given, _, taken = kind.partition(" ")
        declared.append(f"declare {given} @{name}{taken}\n")
    return compile_code("".join(declared) + code, host(), compiled_folder())


def address_of(name: str, code: str) -> int:
    """Where a function of some code lies."""
    with MAKING:
        return int(_engine(code).get_function_address(name))


@cache
def _method(name: str, code: str) -> _Method:
    return _Method(name.encode(), address_of(name, code), FAST_CALL, None)


def function(name: str, code: str, given: object) -> Any:
    """A function of Python's; its code gets `given`, the arguments' array and their number."""
    make = pythonapi["PyCFunction_NewEx"]
    make.restype, make.argtypes = py_object, (c_void_p, py_object, c_void_p)
    with MAKING:
        return make(addressof(_method(name, code)), given, None)
