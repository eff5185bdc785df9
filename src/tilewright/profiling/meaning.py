"""One line on what a kernel or a call is, for those who see its name the first time."""

from __future__ import annotations

from tilewright.model.layers import TYPES, Pixels
from tilewright.profiling.result import Profile
from tilewright.profiling.tally import Row

CALLS = {
    "cuLaunchKernel": "hands a kernel to the GPU's queue",
    "cudaLaunchKernel": "hands a kernel to the GPU's queue",
    "cuMemcpyHtoD": "copies from host to device",
    "cuMemcpyDtoH": "copies from device to host, and waits until it is here",
    "cuMemcpyDtoD": "copies inside the device",
    "cudaMemcpy": "copies between host and device; without pinned memory the host waits",
    "cuMemcpy": "copies between host and device",
    "cudaMemset": "fills device memory",
    "cuMemset": "fills device memory",
    "cudaStreamSynchronize": "the host waits until a stream's work is done",
    "cuStreamSynchronize": "the host waits until a stream's work is done",
    "cudaDeviceSynchronize": "the host waits until the device has done everything",
    "cuCtxSynchronize": "the host waits until the device has done everything",
    "cudaEventSynchronize": "the host waits until a point in the device's work is reached",
    "cudaEventRecord": "marks a point in the device's work",
    "cudaEventCreate": "makes a mark",
    "cudaEventDestroy": "gives a mark back",
    "cudaEventQuery": "asks whether a point in the device's work is reached",
    "cudaStreamWaitEvent": "one stream waits for a point in another's work",
    "cudaMallocManaged": "takes memory that host and device share",
    "cudaMalloc": "takes device memory",
    "cudaFree": "gives device memory back",
    "cudaHostAlloc": "takes host memory that the device can copy by itself",
    "cudaPointerGetAttributes": "asks where memory lies",
    "cudaGetDevice": "asks which device is in use",
    "cudaSetDevice": "chooses the device; the first call makes its context",
    "cudaStreamIsCapturing": "asks whether work is being recorded into a graph",
    "cudaFuncGetAttributes": "asks what a kernel takes",
    "kernel launch (CuPy)": "hands a kernel to the GPU's queue, with CuPy's own part",
    "copy (CuPy)": "copies between host and device, with CuPy's own part",
    "cuInit": "wakes the driver",
    "cuDevicePrimaryCtxRetain": "makes the GPU's context: the driver's state for this process",
    "cuModuleLoad": "puts compiled kernels on the GPU",
    "cuLibraryLoad": "puts compiled kernels on the GPU",
    "cuModuleGetFunction": "finds a kernel in a module",
    "cuDeviceGetAttribute": "asks what the GPU can do",
    "cudaDeviceGetAttribute": "asks what the GPU can do",
    "cudaGetDeviceProperties": "asks what the GPU can do",
    "cudaStreamCreate": "makes a queue of work",
    "clGetPlatformIDs": "loads the drivers and asks which there are",
    "clGetDeviceIDs": "asks a driver for its devices",
    "clCreateContext": "makes the device's context: the driver's state for this process",
    "clCreateCommandQueue": "makes queues of work",
    "clBuildProgram": "compiles kernels for the device, or finds them compiled",
    "clEnqueueNDRangeKernel": "hands a kernel to the device's queue",
    "clSetKernelArg": "sets a kernel's arguments before a launch",
    "clEnqueueWriteBuffer": "copies from host to device; the host waits unless memory is pinned",
    "clEnqueueReadBuffer": "copies from device to host, and waits until it is here",
    "clEnqueueCopyBuffer": "copies inside the device",
    "clEnqueueMarker": "marks a point in the device's work",
    "clEnqueueBarrier": "kernels from here on wait for a mark",
    "clFinish": "the host waits until a queue's work is done",
    "clWaitForEvents": "the host waits until a point in the device's work is reached",
    "clCreateBuffer": "takes device memory",
    "clSVMAlloc": "takes memory that host and device share",
}
# Kernels that get something ready for another, by the end of their names.
HELPERS = {
    "_pad": "writes the input with a border of zeros, so that the convolution need not ask",
    "_unroll": "writes the input as a matrix, one row for each product of a sum",
    "_sum": "adds up sums that several blocks shared",
    "_bias": "sets every sum to its bias, before blocks add to it",
}
KINDS = {each.kind: each.words for each in TYPES.values() if each.words}
KINDS[Pixels.kind] = Pixels.words


def of_call(name: str) -> str:
    """What a call does, by the longest name that it begins with; versions of it end in _v2."""
    known = [start for start in CALLS if name.startswith(start)]
    return CALLS[max(known, key=len)] if known else "a call of the device's library"


def of_kernel(profile: Profile, row: Row) -> str:
    """What a kernel computes, and for the rung's own what its idea is."""
    layers = ", ".join(row.layers)
    kinds = {profile.layer_kinds.get(layer, "") for layer in row.layers}
    if row.kind == "host":
        return f"{layers}: {KINDS['input']}, by the host"
    for end, words in HELPERS.items():
        if row.name.endswith(end):
            return f"{layers}: {words}"
    if "conv" in kinds:
        return f"{layers}: {profile.idea}"
    words = "; ".join(KINDS[kind] for kind in sorted(kinds) if kind in KINDS)
    return f"{layers}: {words}" if words else layers or "belongs to no layer"


# By the names of OpenACC's data clauses; a context and modules have none there.
CLAUSES = {
    "cudaMalloc": "create", "cuMemAlloc": "create", "cudaHostAlloc": "create",
    "clCreateBuffer": "create", "clSVMAlloc": "create",
    "cudaFree": "delete", "cuMemFree": "delete", "clReleaseMemObject": "delete",
    "cuModuleLoad": "module", "cuLibraryLoad": "module", "cudaLibraryLoad": "module",
    "clBuildProgram": "module", "cuModuleUnload": "module", "cuLibraryUnload": "module",
    "cudaSetDevice": "context", "cuCtxCreate": "context", "cuDevicePrimaryCtxRetain": "context",
    "clCreateContext": "context", "clCreateCommandQueue": "context",
    "cudaStreamCreate": "context", "cudaStreamDestroy": "context",
}  # fmt: skip


def clause(call: str) -> str:
    """What a call makes or frees; nothing of others."""
    return next((words for start, words in CLAUSES.items() if call.startswith(start)), "")


MOVES = {
    "[memcpy HtoD]": "from the host's memory to the device's",
    "[memcpy DtoH]": "from the device's memory to the host's",
    "[memcpy DtoD]": "from one place in the device's memory to another",
    "[memset]": "memory of the device filled with a value",
}


def of_move(row: Row) -> str:
    """A copy, or memory that is filled, and for which layers."""
    words, layers = MOVES.get(row.name, ""), ", ".join(row.layers)
    return f"{layers}: {words}" if words and layers else words or layers


PHASES = {
    "the process, its libraries": "the interpreter starts and imports what it needs",
    "open device": "the driver is asked for the device: a GPU's context",
    "create network": "layers, shapes, and what is chosen for each",
    "load parameters": "weights from their file",
    "load data": "images from their files, resized if need be",
    "prove": "the rung held to its proof",
    "build kernels": "compiled or loaded as modules, first allocations",
    "send weights": "from the host's memory to the device's",
    "create outputs": "buffers for results",
    "pin images": "images where the GPU can fetch them by itself",
    "warm up": "the first images, uncounted",
    "free memory": "buffers are given back, and what libraries kept",
}


def of_phase(name: str) -> str:
    """What happens in a phase before a run."""
    return PHASES.get(name, "")
