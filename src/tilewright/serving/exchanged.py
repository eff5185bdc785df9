"""Arrays of any library on a GPU, as it hands them out: by DLPack, or by CUDA's array interface.

What is handed out is read where it lies, and held until the kernels are launched. To make an array
of CuPy's of it first, which has a form for everything, takes longer than all the rest of a call.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from struct import unpack_from
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.serving import machine_code
from tilewright.serving.host import HOST_MEMORY

VERSION = (1, 0)  # of DLPack, the newest that is understood
# DLPack's numbers of a GPU's memory, and of memory that all GPUs and the host share.
GPU, SHARED = 2, 13
# Flags of memory that is of no use to write to: it must not be, or is a copy.
FIXED = 1 | 2
# Kinds of numbers, as DLPack and as NumPy's descriptions have them.
DLPACK_KINDS = ("int", "uint", "float", "handle", "bfloat", "complex", "bool")
NUMPY_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex", "b": "bool"}

# Takes a capsule; gives the address of the array's memory, and words: flags, device, dimensions and
# type, shape, and strides unless they are left out.
CODE = """
@versioned = private constant [19 x i8] c"dltensor_versioned\\00"
@plain = private constant [9 x i8] c"dltensor\\00"
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

%Tensor = type { i64, i64, i32, i32, ptr, ptr, i64 }
%Managed = type { i32, i32, ptr, ptr, i64, %Tensor }

define ptr @told(ptr %self, ptr %given, i64 %count) {
entry:
  %capsule = load ptr, ptr %given
  %new = call i32 @PyCapsule_IsValid(ptr %capsule, ptr @versioned)
  %is.new = icmp ne i32 %new, 0
  br i1 %is.new, label %with.version, label %without

with.version:
  %managed = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @versioned)
  %major = load i32, ptr %managed
  %flags.place = getelementptr %Managed, ptr %managed, i32 0, i32 4
  %its.flags = load i64, ptr %flags.place
  %inside = getelementptr %Managed, ptr %managed, i32 0, i32 5
  %known = icmp eq i32 %major, 1
  br i1 %known, label %read, label %without

without:  ; or something else, of which Python says that it is no such capsule
  %old = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr @plain)
  %wrong = icmp eq ptr %old, null
  br i1 %wrong, label %refused, label %read

refused:
  ret ptr null

read:
  %tensor = phi ptr [ %inside, %with.version ], [ %old, %without ]
  %flags = phi i64 [ %its.flags, %with.version ], [ 0, %without ]
  %start = load i64, ptr %tensor
  %device.place = getelementptr %Tensor, ptr %tensor, i32 0, i32 1
  %device = load i64, ptr %device.place
  %type.place = getelementptr %Tensor, ptr %tensor, i32 0, i32 2
  %type = load i64, ptr %type.place
  %shape.place = getelementptr %Tensor, ptr %tensor, i32 0, i32 4
  %shape = load ptr, ptr %shape.place
  %strides.place = getelementptr %Tensor, ptr %tensor, i32 0, i32 5
  %strides = load ptr, ptr %strides.place
  %offset.place = getelementptr %Tensor, ptr %tensor, i32 0, i32 6
  %offset = load i64, ptr %offset.place
  %address = add i64 %start, %offset
  %dimensions = and i64 %type, 4294967295
  %bytes = mul i64 %dimensions, 8
  %both = mul i64 %dimensions, 2
  %most = add i64 %both, 3
  %words = alloca i64, i64 %most
  store i64 %flags, ptr %words
  %second = getelementptr i64, ptr %words, i64 1
  store i64 %device, ptr %second
  %third = getelementptr i64, ptr %words, i64 2
  store i64 %type, ptr %third
  %shape.copy = getelementptr i64, ptr %words, i64 3
  call void @llvm.memcpy.p0.p0.i64(ptr %shape.copy, ptr %shape, i64 %bytes, i1 false)
  %short = add i64 %bytes, 24
  %strided = icmp ne ptr %strides, null
  br i1 %strided, label %stride, label %tell

stride:
  %strides.copy = getelementptr i8, ptr %shape.copy, i64 %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %strides.copy, ptr %strides, i64 %bytes, i1 false)
  %long = add i64 %short, %bytes
  br label %tell

tell:
  %size = phi i64 [ %short, %read ], [ %long, %stride ]
  %place = inttoptr i64 %address to ptr
  %number = call ptr @PyLong_FromVoidPtr(ptr %place)
  %facts = call ptr @PyBytes_FromStringAndSize(ptr %words, i64 %size)
  %pair = call ptr (i64, ...) @PyTuple_Pack(i64 2, ptr %number, ptr %facts)
  call void @Py_DecRef(ptr %number)
  call void @Py_DecRef(ptr %facts)
  ret ptr %pair
}
"""


@cache
def told() -> Any:
    """The function of Python's: what a capsule of DLPack tells, as an address and bytes."""
    return machine_code.function("told", CODE, None)


def of_dlpack(facts: bytes, index: int) -> tuple[Shape, str, bool, int, bool]:
    """Those bytes in words: shape, type, whether it is contiguous, the GPU (-1: the host; shared
    memory is on the one asked for), and whether it may be written to."""
    memory, gpu = unpack_from("ii", facts, 8)
    dimensions, kind, bits, lanes = unpack_from("iBBH", facts, 16)
    rest = unpack_from(f"{len(facts) // 8 - 3}q", facts, 24)
    shape, strides = rest[:dimensions], rest[dimensions:]
    if memory in HOST_MEMORY:
        gpu = -1
    elif memory == SHARED:
        gpu = index
    elif memory != GPU:
        raise TilewrightError(f"an array lies in memory of DLPack's kind {memory}, not CUDA's")
    name = DLPACK_KINDS[kind] if kind < len(DLPACK_KINDS) else f"kind {kind} of "
    if lanes != 1:
        name = f"{lanes} times {name}"
    in_order = not strides or contiguous(shape, strides)
    return shape, _named(name, bits), in_order, gpu, not facts[0] & FIXED


def of_interface(facts: tuple[Any, ...]) -> tuple[Shape, str, bool]:
    """Shape, a description of the type, and strides in bytes or None, in words."""
    shape, described, strides = facts
    size = int(described[2:])
    name = NUMPY_KINDS.get(described[1], f"{described[1]} of ")
    in_order = strides is None or contiguous(shape, strides, size)
    return tuple(shape), _named(name, 8 * size), in_order


def _named(kind: str, bits: int) -> str:
    return kind if kind == "bool" else f"{kind}{bits}"


def contiguous(shape: Shape, strides: Shape, size: int = 1) -> bool:
    """Whether values follow one another, with strides in values or in bytes of which each has so
    many; where there is one, or none, steps do not matter."""
    if math.prod(shape) == 0:
        return True
    return all(
        count == 1 or step == size * right
        for count, step, right in zip(shape, strides, strides_of(shape), strict=True)
    )


@lru_cache
def strides_of(shape: Shape) -> Shape:
    """In values, where they follow one another."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
