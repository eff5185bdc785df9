"""A call like one before, in machine code: arrays are looked at, compared and launched on.

To ask a library six questions of two arrays takes Python longer than the driver needs to launch.
DLPack has a way without Python: a type's table of C functions (`__dlpack_c_exchange_api__`), of
which one tells all there is to know of an array. Where it is the same as at a call that went well
before, but for the addresses, the kernels of that call are launched on them. Whatever is different
is left to the long way: nothing was done then, and nothing is refused here.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from ctypes import (
    PYFUNCTYPE,
    addressof,
    c_char_p,
    c_int,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from typing import Any

from tilewright.serving import at_once, machine_code
from tilewright.serving.launches import Launches, Outcome

DIFFERENT = -4  # instead of an error: nothing was launched
# Of DLPack's table: the version of its form, and the place of the function that tells.
TABLE, VERSION, TELL = b"dlpack_exchange_api", 1, 5
# Words of what DLPack tells of an array, in which it is a `DLTensor`.
ADDRESS, DEVICE, TYPE, SHAPE, STRIDES, OFFSET, TOLD = range(7)
LOW = 2**32 - 1  # half of a word: of the table's first its version, of the type's the dimensions

CODE = f"""
declare i32 @memcmp(ptr, ptr, i64)

%Told = type {{ i64, i64, i64, ptr, ptr, i64 }}
; the function that tells, what it told of device and type, the bits that an address must not have,
; the bytes of its memory, and those of its shape, which comes behind, and of its strides
%Known = type {{ ptr, i64, i64, i64, i64, i64 }}
; the launches' block, and what is known of images and outputs
%State = type {{ ptr, ptr, ptr }}

define internal i64 @find(ptr %object, ptr %known) {{
entry:
  %told = alloca %Told
  %tell = load ptr, ptr %known
  %refused = call i32 %tell(ptr %object, ptr %told)
  %answered = icmp eq i32 %refused, 0
  br i1 %answered, label %compare, label %forget

forget:
  call void @PyErr_Clear()
  br label %different

compare:
  %start = load i64, ptr %told
  %device.place = getelementptr %Told, ptr %told, i32 0, i32 {DEVICE}
  %device = load i64, ptr %device.place
  %type.place = getelementptr %Told, ptr %told, i32 0, i32 {TYPE}
  %type = load i64, ptr %type.place
  %offset.place = getelementptr %Told, ptr %told, i32 0, i32 {OFFSET}
  %offset = load i64, ptr %offset.place
  %known.device.place = getelementptr %Known, ptr %known, i32 0, i32 1
  %known.device = load i64, ptr %known.device.place
  %known.type.place = getelementptr %Known, ptr %known, i32 0, i32 2
  %known.type = load i64, ptr %known.type.place
  %forbidden.place = getelementptr %Known, ptr %known, i32 0, i32 3
  %forbidden = load i64, ptr %forbidden.place
  %address = add i64 %start, %offset
  %other.device = xor i64 %device, %known.device
  %other.type = xor i64 %type, %known.type
  %inside = and i64 %address, %forbidden
  %other = or i64 %other.device, %other.type
  %any = or i64 %other, %inside
  %alike = icmp eq i64 %any, 0
  br i1 %alike, label %measure, label %different

measure:
  %shape.place = getelementptr %Told, ptr %told, i32 0, i32 {SHAPE}
  %shape = load ptr, ptr %shape.place
  %strides.place = getelementptr %Told, ptr %told, i32 0, i32 {STRIDES}
  %strides = load ptr, ptr %strides.place
  %bytes.place = getelementptr %Known, ptr %known, i32 0, i32 5
  %bytes = load i64, ptr %bytes.place
  %known.shape = getelementptr %Known, ptr %known, i64 1
  %known.strides = getelementptr i8, ptr %known.shape, i64 %bytes
  %other.shape = call i32 @memcmp(ptr %shape, ptr %known.shape, i64 %bytes)
  %same.shape = icmp eq i32 %other.shape, 0
  %strided = icmp ne ptr %strides, null
  %both = and i1 %same.shape, %strided
  br i1 %both, label %stride, label %different

stride:
  %other.strides = call i32 @memcmp(ptr %strides, ptr %known.strides, i64 %bytes)
  %same = icmp eq i32 %other.strides, 0
  br i1 %same, label %known.all, label %different

known.all:
  ret i64 %address

different:
  ret i64 0
}}

define ptr @again(ptr %self, ptr %given, i64 %count) {{
entry:
  %state = call ptr @PyLong_AsVoidPtr(ptr %self)
  %images.place = getelementptr %State, ptr %state, i32 0, i32 1
  %images.known = load ptr, ptr %images.place
  %outputs.place = getelementptr %State, ptr %state, i32 0, i32 2
  %outputs.known = load ptr, ptr %outputs.place
  %images.object = load ptr, ptr %given
  %images = call i64 @find(ptr %images.object, ptr %images.known)
  %images.found = icmp ne i64 %images, 0
  br i1 %images.found, label %second, label %different

second:
  %outputs.argument = getelementptr ptr, ptr %given, i64 1
  %outputs.object = load ptr, ptr %outputs.argument
  %outputs = call i64 @find(ptr %outputs.object, ptr %outputs.known)
  %outputs.found = icmp ne i64 %outputs, 0
  %images.size.place = getelementptr %Known, ptr %images.known, i32 0, i32 4
  %images.size = load i64, ptr %images.size.place
  %outputs.size.place = getelementptr %Known, ptr %outputs.known, i32 0, i32 4
  %outputs.size = load i64, ptr %outputs.size.place
  %images.end = add i64 %images, %images.size
  %outputs.end = add i64 %outputs, %outputs.size
  %before = icmp ule i64 %images.end, %outputs
  %behind = icmp ule i64 %outputs.end, %images
  %apart = or i1 %before, %behind
  %right = and i1 %outputs.found, %apart
  br i1 %right, label %launch, label %different

launch:
  %stream.argument = getelementptr ptr, ptr %given, i64 2
  %stream.object = load ptr, ptr %stream.argument
  %stream = call ptr @PyLong_AsVoidPtr(ptr %stream.object)
  %wrong = call ptr @PyErr_Occurred()
  %number.given = icmp eq ptr %wrong, null
  br i1 %number.given, label %go, label %refused

refused:
  ret ptr null

go:
  %block = load ptr, ptr %state
  %stream.word = getelementptr i64, ptr %block, i64 {at_once.STREAM}
  store ptr %stream, ptr %stream.word
  %images.word = getelementptr i64, ptr %block, i64 {at_once.IMAGES}
  store i64 %images, ptr %images.word
  %outputs.word = getelementptr i64, ptr %block, i64 {at_once.OUTPUTS}
  store i64 %outputs, ptr %outputs.word
  %thread = call ptr @PyEval_SaveThread()
  %error = call i32 @launch_all(ptr %block)
  call void @PyEval_RestoreThread(ptr %thread)
  %long = sext i32 %error to i64
  br label %over

different:
  br label %over

over:
  %result = phi i64 [ %long, %go ], [ {DIFFERENT}, %different ]
  %number = call ptr @PyLong_FromLong(i64 %result)
  ret ptr %number
}}
"""


def telling(arrays: type) -> int:
    """The address of the function that tells of a library's arrays; 0 if it has none, or in a form
    that is not known here."""
    table = getattr(arrays, "__dlpack_c_exchange_api__", None)
    valid, pointer = pythonapi["PyCapsule_IsValid"], pythonapi["PyCapsule_GetPointer"]
    valid.restype, valid.argtypes = c_int, (py_object, c_char_p)
    pointer.restype, pointer.argtypes = c_void_p, (py_object, c_char_p)
    if not valid(table, TABLE):
        return 0
    words = (c_uint64 * (TELL + 1)).from_address(pointer(table, TABLE))
    return words[TELL] if words[0] & LOW == VERSION else 0


class Again:
    """Launches on arrays like those of a call, all of one library; which are not kept."""

    def __init__(
        self,
        launches: Launches,
        kind: Any,
        images: tuple[Any, int, int],
        outputs: tuple[Any, int, int],
    ) -> None:
        """Images and outputs each with the bytes of their memory, and what its address must be a
        multiple of; the kind knows how to tell of them."""
        self.kind, self.launches, self.arrays = kind, launches, type(outputs[0])
        self.shape = images[0].shape
        self.make = kind.maker(tuple(outputs[0].shape))
        self.kept = launches.words, _known(kind.tell, *images), _known(kind.tell, *outputs)
        self.state = array("Q", [each.buffer_info()[0] for each in self.kept])
        # Takes images and outputs of that type, and a stream; gives what `launch_all` does, too.
        self.launch: Callable[[Any, Any, int], int] = machine_code.function(
            "again", at_once.CODE + CODE, self.state.buffer_info()[0]
        )

    def __call__(self, images: Any, out: Any, stream: int, given: int | None) -> Any:
        """Launched on new outputs, which are given back, or the outcome; None, and nothing is done,
        if there is an `out` of another type, or the images differ."""
        if (
            out is not None
            or images.shape != self.shape
            or (self.kind.gradients and images.requires_grad)
        ):
            return None
        # On another GPU than the images, if that is the current one, and so different.
        out = self.make() if given is None else self.kind.on(given, self.make)
        error = self.launch(images, out, stream)
        return Outcome(error, out) if error else out


def _known(tell: int, like: Any, size: int, boundary: int) -> array[int]:
    told = (c_uint64 * TOLD)()
    refused = PYFUNCTYPE(c_int)(tell)(py_object(like), c_void_p(addressof(told)))
    assert not refused, "an array of which its library told before"
    dimensions = told[TYPE] & LOW
    # Older tables leave out the strides of what is contiguous: the like is never known again.
    places = [told[SHAPE], told[STRIDES] or told[SHAPE]]
    sizes = [word for each in places for word in (c_uint64 * dimensions).from_address(each)]
    head = (tell, told[DEVICE], told[TYPE], boundary - 1, size, 8 * dimensions)
    return array("Q", [*head, *sizes])
