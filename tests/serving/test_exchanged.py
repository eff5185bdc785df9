"""What arrays tell by DLPack and CUDA's array interface, against what NumPy says of them."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest

from tilewright.serving.exchanged import contiguous, of_dlpack, of_interface, told

MEMORY = np.arange(240, dtype=np.float32)
ARRAYS = (
    MEMORY,
    MEMORY.reshape(2, 3, 4, 10),
    MEMORY.reshape(2, 3, 4, 10)[1:],
    MEMORY.reshape(2, 3, 4, 10)[:, :, 1:],
    MEMORY.reshape(2, 3, 4, 10)[:, ::2, :0],
    MEMORY.reshape(24, 10).T,
    MEMORY.reshape(24, 10)[::-1],
    MEMORY.reshape(240, 1)[::2],
    MEMORY[:1].reshape(1, 1, 1),
    np.lib.stride_tricks.as_strided(MEMORY, (1, 5), (7, 4)),
    MEMORY[3],
    np.zeros((2, 2), np.uint8),
    np.zeros(3, bool),
    np.zeros(3, np.complex64),
)


@pytest.mark.parametrize("how", [{}, {"max_version": (1, 0)}], ids=["old", "new"])
@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.shape}{array.strides}")
def test_as_numpy_says(array, how):
    array = np.asarray(array)
    address, facts = told()(array.__dlpack__(**how))
    shape, name, in_order, gpu, writable = of_dlpack(facts, 0)
    assert address == array.ctypes.data or not array.size
    assert (shape, name, gpu, writable) == (array.shape, array.dtype.name, -1, True)
    assert in_order == array.flags.c_contiguous
    interface = array.__array_interface__
    described = interface["shape"], interface["typestr"], interface["strides"]
    assert of_interface(described) == (array.shape, array.dtype.name, array.flags.c_contiguous)
    assert contiguous(array.shape, tuple(each // array.itemsize for each in array.strides)) == (
        array.flags.c_contiguous
    )


def test_values_with_other_bytes_between_them():
    """As a field has them whose neighbours take less than it does."""
    records = np.zeros(6, [("value", np.float32), ("flag", np.uint8)])["value"]
    assert records.strides == (5,)
    interface = records.__array_interface__
    described = interface["shape"], interface["typestr"], interface["strides"]
    assert of_interface(described) == ((6,), "float32", False)


def test_what_is_fixed_says_so():
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    assert of_dlpack(told()(array.__dlpack__(max_version=(1, 0)))[1], 0)[-1] is False


def test_a_capsule_is_read_and_not_used_up():
    """Whoever made it gives its memory back, once."""
    array = np.zeros(3, np.float32)
    before = sys.getrefcount(array)
    capsule = array.__dlpack__(max_version=(1, 0))
    assert told()(capsule) == told()(capsule)
    del capsule
    gc.collect()
    assert sys.getrefcount(array) == before
    for other in (None, "capsule", object()):
        with pytest.raises(ValueError, match="PyCapsule"):
            told()(other)
