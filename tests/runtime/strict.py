"""A stand-in for pyopencl, over PoCL, that insists on what drivers of real GPUs insist on.

PoCL forgives much: arguments released before a launch, pointers to anywhere, work-groups and shared
memory that no GPU has. Here each of these is a `Violation`, and so is whatever the standard leaves
undefined: commands that touch the same bytes and do not wait for each other, waiting for a command
of another queue that was never flushed, host memory that dies or changes before a copy is done.
What a copy brings to the host is there when the copy was waited for, not before.

What is not checked here cannot be used: a function of pyopencl that is not below is refused.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from dataclasses import dataclass
from functools import cache, lru_cache
from types import SimpleNamespace

import numpy as np

from tests import quick_builds
from tilewright.runtime import opencl, opencl_programs, opencl_runtime
from tilewright.runtime.pocl import is_pocl

LARGEST_GRID = (2**31 - 1, 65_535, 65_535)
BUILD_OPTIONS = {"-cl-std=CL1.2", "-cl-kernel-arg-info"}
# Constants and errors: what can be had from pyopencl as it is.
HARMLESS = (
    "command_queue_properties", "device_type", "kernel_arg_address_qualifier", "kernel_arg_info",
    "kernel_arg_type_qualifier", "kernel_work_group_info", "map_flags", "mem_flags", "status_code",
    "Error", "LogicError", "MemoryError", "RuntimeError",
)  # fmt: skip


class Violation(AssertionError):
    """Something that a driver may refuse, or worse, not refuse."""


@dataclass(frozen=True)
class Machine:
    """What a device says of itself."""

    name: str
    alignment: int  # bytes that the start of a sub-buffer is a multiple of
    threads: int
    block: tuple[int, int, int]
    shared_bytes: int
    constant_bytes: int = 64 * 1024
    version: int = 3  # of OpenCL; before 2, the question about shared memory is an error


NVIDIA = Machine("NVIDIA", 512, 1024, (1024, 1024, 64), 48 * 1024)
AMD = Machine("AMD", 256, 256, (1024, 1024, 1024), 64 * 1024, version=2)
SMALL = Machine("small", 4096, 256, (256, 256, 64), 32 * 1024, version=1)
GENEROUS = Machine("generous", 128, 4096, (4096, 4096, 4096), 1024 * 1024)
MACHINES = (NVIDIA, AMD, SMALL, GENEROUS)


def install(monkeypatch, machine):
    """From here on the runtime's only OpenCL device is this machine."""
    module = Module(machine)
    monkeypatch.setattr(opencl, "load", lambda: module)
    monkeypatch.setattr(opencl, "devices", lambda: [module.device])
    for room, name in (
        (opencl, "context"), (opencl_programs, "program"), (opencl_runtime, "_handed_out"),
    ):  # fmt: skip
        monkeypatch.setattr(room, name, cache(getattr(room, name).__wrapped__))
    return module


def insist(fact, words):
    if not fact:
        raise Violation(words)


@cache
def real():
    """pyopencl, and one PoCL device and context for all machines."""
    cl = opencl.load.__wrapped__()
    device = next(device for device in opencl.devices.__wrapped__() if is_pocl(device))
    return cl, device, cl.Context([device])


@lru_cache
def built(text, options):
    cl, _, context = real()
    return quick_builds.build(cl, context, text, options, quick_builds.NOT_OPTIMISED)


class Module:
    """What `import pyopencl` gives."""

    def __init__(self, machine):
        self.machine, self.device = machine, Device(machine)
        self.commands = 0
        self.done = 0  # a bit for each command that the host knows to be done
        self.promises = []  # (command, what must still hold when it is done)
        self.host = Memory("the host's memory")

    def __getattr__(self, name):
        insist(name in HARMLESS, f"{name} is not checked")
        return getattr(real()[0], name)

    def Context(self, devices):
        insist(devices == [self.device], "a context of another device")
        return real()[2]

    def CommandQueue(self, context, properties):
        return Queue(self, properties)

    def Buffer(self, context, flags, size):
        insist(0 < size <= self.device.max_mem_alloc_size, f"a buffer of {size} bytes")
        return Buffer(self.machine, real()[0].Buffer(context, flags, size), size)

    def Program(self, context, text):
        return Program(text)

    def Kernel(self, program, name):
        return Kernel(self.machine, program, name)

    def fsvm_empty(self, *given):
        raise Violation("shared virtual memory, which the device has not")

    SVM = fsvm_empty

    def enqueue_marker(self, queue, wait_for=None):
        command = Command(self, queue, "a marker", wait_for)
        return Event(command, real()[0].enqueue_marker(queue.real, _real(wait_for)))

    def enqueue_barrier(self, queue, wait_for=None):
        command = Command(self, queue, "a barrier", wait_for)
        return Event(command, real()[0].enqueue_barrier(queue.real, _real(wait_for)))

    def enqueue_map_buffer(self, queue, buffer, flags, offset, shape, dtype):
        buffer.check()
        insist(math.prod(shape) * dtype.itemsize > 0, "nothing is mapped")
        command = Command(self, queue, "a map", None)
        array, event = real()[0].enqueue_map_buffer(
            queue.real, buffer.real, flags, offset, shape, dtype
        )
        buffer.mapped = True
        command.finish()
        return array, Event(command, event)

    def enqueue_copy(self, queue, target, source, *, is_blocking=True, wait_for=None, **where):
        if isinstance(target, np.ndarray):
            return self._read(queue, target, source, is_blocking, wait_for, **where)
        if isinstance(source, np.ndarray):
            return self._write(queue, target, source, is_blocking, wait_for, **where)
        return self._move(queue, target, source, wait_for, **where)

    def _write(self, queue, buffer, array, is_blocking, wait_for, dst_offset=0):
        insist(array.flags.c_contiguous, "the host's array is not in one piece")
        command = Command(self, queue, "a write", wait_for)
        buffer.touch(command, dst_offset, array.nbytes, True)
        self.host.touch(command, array.ctypes.data, array.nbytes, False)
        event = real()[0].enqueue_copy(
            queue.real, buffer.real, array, dst_offset=dst_offset, wait_for=_real(wait_for)
        )
        event.wait()  # lets go of the array
        if is_blocking:
            command.finish()
        else:
            place, kept = HostMemory(array), array.tobytes()

            def unchanged():
                insist(place.content() == kept, "host memory changed before its copy was done")

            self.promises.append((command, unchanged))
        return Event(command, event)

    def _read(self, queue, array, buffer, is_blocking, wait_for, src_offset=0):
        insist(array.flags.c_contiguous, "the host's array is not in one piece")
        command = Command(self, queue, "a read", wait_for)
        buffer.touch(command, src_offset, array.nbytes, False)
        self.host.touch(command, array.ctypes.data, array.nbytes, True)
        found = np.empty(array.shape, array.dtype)
        event = real()[0].enqueue_copy(
            queue.real, found, buffer.real, src_offset=src_offset, wait_for=_real(wait_for)
        )
        event.wait()
        place, content = HostMemory(array), found.tobytes()
        if is_blocking:
            place.fill(content)
            command.finish()
        else:
            place.fill(b"\xff" * len(content))  # of floats, NaN
            self.promises.append((command, lambda: place.fill(content)))
        return Event(command, event)

    def _move(self, queue, target, source, wait_for, byte_count, src_offset, dst_offset):
        command = Command(self, queue, "a copy", wait_for)
        source.touch(command, src_offset, byte_count, False)
        target.touch(command, dst_offset, byte_count, True)
        apart = abs(src_offset - dst_offset) >= byte_count
        insist(source is not target or apart, "a copy of bytes onto themselves")
        return Event(command, real()[0].enqueue_copy(
            queue.real, target.real, source.real, byte_count=byte_count, src_offset=src_offset,
            dst_offset=dst_offset, wait_for=_real(wait_for),
        ))  # fmt: skip

    def enqueue_nd_range_kernel(self, queue, kernel, items, block):
        arguments = kernel.ready(items, block)
        command = Command(self, queue, f"the kernel {kernel.name}", None)
        for argument, writes in zip(arguments, kernel.writes, strict=True):
            if isinstance(argument, Buffer):
                argument.touch(command, 0, argument.size, writes)
        kernel.real.set_args(*(a.real if isinstance(a, Buffer) else a for a in arguments))
        event = real()[0].enqueue_nd_range_kernel(queue.real, kernel.real, items, block)
        return Event(command, event)


class Device:
    """PoCL's device under a machine's description."""

    def __init__(self, machine):
        self.machine, self.real = machine, real()[1]
        self.platform = SimpleNamespace(name=machine.name)  # what is special to PoCL stays out
        self.mem_base_addr_align = 8 * machine.alignment
        self.max_work_group_size, self.max_work_item_sizes = machine.threads, [*machine.block]
        self.local_mem_size = machine.shared_bytes
        self.max_constant_buffer_size = machine.constant_bytes

    def __getattr__(self, name):
        return getattr(self.real, name)

    @property
    def svm_capabilities(self):
        if self.machine.version < 2:
            raise real()[0].LogicError("clGetDeviceInfo failed: INVALID_VALUE")
        return 1  # coarse-grained, as NVIDIA's


class Queue:
    """Commands one after the other; `flushed` is how many of them the device was told of."""

    def __init__(self, module, properties):
        cl, _, context = real()
        self.module, self.real = module, cl.CommandQueue(context, properties=properties)
        self.last, self.length, self.flushed = None, 0, 0

    def flush(self):
        self.flushed = self.length

    def finish(self):
        self.flush()
        self.real.finish()
        if self.last is not None:
            self.last.finish()


class Command:
    """Something queued. `before` has a bit for each command that is done when it begins."""

    def __init__(self, module, queue, what, wait_for):
        self.module, self.queue, self.what = module, queue, what
        self.bit, self.before = 1 << module.commands, module.done
        module.commands += 1
        if queue.last is not None:
            self.before |= queue.last.before | queue.last.bit
        for event in wait_for or ():
            other = event.command
            insist(
                other.queue is queue or other.place <= other.queue.flushed,
                f"{what} waits for {other.what} of another queue, which was never flushed",
            )
            self.before |= other.before | other.bit
        queue.last = self
        queue.length += 1
        self.place = queue.length

    def finish(self):
        """The host knows it to be done, and all that was before it."""
        module = self.module
        self.queue.flushed = max(self.queue.flushed, self.place)
        module.done |= self.before | self.bit
        over = [promise for command, promise in module.promises if command.bit & module.done]
        module.promises = [each for each in module.promises if not each[0].bit & module.done]
        for promise in over:
            promise()


class Event:
    def __init__(self, command, event):
        self.command, self.real = command, event

    def wait(self):
        self.real.wait()
        self.command.finish()

    @property
    def profile(self):
        insist(self.command.bit & self.command.module.done, "times of what may not be done")
        return self.real.profile


class Memory:
    """Bytes that commands touch; two of them at once only to read."""

    def __init__(self, what):
        self.what, self.touched = what, []

    def touch(self, command, first, size, writes):
        done = command.module.done
        self.touched = [each for each in self.touched if not each[0].bit & done]
        for other, start, stop, wrote in self.touched:
            if start < first + size and first < stop and (writes or wrote):
                insist(
                    other.bit & command.before or other is command,
                    f"{command.what} and {other.what} touch the same bytes of {self.what}, and "
                    "neither waits for the other",
                )
        self.touched.append((command, first, first + size, writes))


class HostMemory:
    """Where an array is, without keeping it alive."""

    def __init__(self, array):
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        self.root, self.address, self.size = weakref.ref(root), array.ctypes.data, array.nbytes

    def content(self):
        insist(self.root() is not None, "host memory was gone before its copy was done")
        return ctypes.string_at(self.address, self.size)

    def fill(self, content):
        insist(self.root() is not None, "host memory was gone before its copy was done")
        ctypes.memmove(self.address, content, len(content))


class Buffer:
    """A buffer, or a region of one."""

    def __init__(self, machine, memory, size, parent=None, origin=0):
        self.machine, self.real, self.size = machine, memory, size
        self.parent, self.origin = parent, origin
        self.memory = parent.memory if parent else Memory("a buffer")
        self.released = self.mapped = False

    def check(self):
        insist(not self.released, "a buffer that was released")
        insist(not self.mapped, "a buffer that the host has mapped")

    def touch(self, command, first, size, writes):
        self.check()
        insist(size > 0, f"{command.what} of no bytes")
        insist(first >= 0 and first + size <= self.size, f"{command.what} beyond a buffer's end")
        self.memory.touch(command, self.origin + first, size, writes)

    def get_sub_region(self, origin, size):
        self.check()
        insist(self.parent is None, "a region of a region")
        insist(size > 0 and origin + size <= self.size, f"a region of {size} bytes at {origin}")
        aligned = origin % self.machine.alignment == 0
        insist(aligned, f"a region at {origin}, no multiple of {self.machine.alignment}")
        region = self.real.get_sub_region(origin, size)
        return Buffer(self.machine, region, size, self, origin)

    def release(self):
        self.check()
        self.released = True


class Program:
    def __init__(self, text):
        self.text = text

    def build(self, options):
        for option in options.split():
            insist(option in BUILD_OPTIONS, f"the option {option}, which not every compiler knows")
        self.real = built(self.text, options)
        return self


class Kernel:
    """A kernel that keeps none of its arguments alive, as OpenCL's do not."""

    def __init__(self, machine, program, name):
        self.machine, self.name = machine, name
        cl, device, _ = real()
        self.real = cl.Kernel(program.real, name)
        self.num_args = self.real.num_args
        self.given, self.thread = None, None
        info, sizes = cl.kernel_arg_info, cl.kernel_work_group_info
        about = [
            (
                self.get_arg_info(i, info.TYPE_QUALIFIER),
                self.get_arg_info(i, info.ADDRESS_QUALIFIER),
            )
            for i in range(self.num_args)
        ]
        self.writes = [not kind & cl.kernel_arg_type_qualifier.CONST for kind, _ in about]
        self.spaces = [space for _, space in about]
        self.shared_bytes = self.real.get_work_group_info(sizes.LOCAL_MEM_SIZE, device)
        self.block = tuple(self.real.get_work_group_info(sizes.COMPILE_WORK_GROUP_SIZE, device))

    def get_arg_info(self, argument, what):
        return self.real.get_arg_info(argument, what)

    def get_work_group_info(self, what, device):
        found = self.real.get_work_group_info(what, device.real)
        largest = what == real()[0].kernel_work_group_info.WORK_GROUP_SIZE
        return min(found, self.machine.threads) if largest else found

    def set_args(self, *given):
        here = threading.get_ident()
        insist(self.thread in (None, here), "arguments of one kernel from two threads")
        insist(len(given) == self.num_args, f"{len(given)} arguments of {self.num_args}")
        self.thread = here
        self.given = [weakref.ref(each) if isinstance(each, Buffer) else each for each in given]

    def ready(self, items, block):
        """The arguments, if all is as it must be at a launch."""
        machine = self.machine
        insist(self.given is not None, f"{self.name} is launched without arguments")
        insist(self.thread == threading.get_ident(), "one kernel in two threads")
        insist(len(items) == len(block) == 3, "three dimensions")
        insist(math.prod(block) <= machine.threads, f"a work-group of {math.prod(block)} threads")
        insist(all(map(int.__le__, block, machine.block)), f"a work-group of {block}")
        insist(block == self.block, f"a work-group of {block}, compiled for {self.block}")
        insist(all(n > 0 and n % t == 0 for n, t in zip(items, block, strict=True)), f"{items}")
        groups = [n // t for n, t in zip(items, block, strict=True)]
        insist(all(map(int.__le__, groups, LARGEST_GRID)), f"{groups} work-groups")
        insist(self.shared_bytes <= machine.shared_bytes, f"{self.shared_bytes} shared bytes")
        return [self._alive(*each) for each in zip(self.given, self.spaces, strict=True)]

    def _alive(self, given, space):
        spaces = real()[0].kernel_arg_address_qualifier
        if space == spaces.PRIVATE:
            insist(isinstance(given, np.int32), f"{given!r} for a whole number of 32 bits")
            return given
        insist(isinstance(given, weakref.ref), f"{given!r} for a buffer")
        buffer = given()
        insist(buffer is not None, "an argument was released before the launch")
        buffer.check()
        if space == spaces.CONSTANT:
            fits = buffer.size <= self.machine.constant_bytes
            insist(fits, f"constant memory of {buffer.size} bytes")
        return buffer


def _real(events):
    return None if events is None else [event.real for event in events]
