"""Building blocks of CUDA kernels as C++ of this machine: what threads do by themselves, run.

Only for what asks nothing of a GPU but arithmetic, memory, and values of other lanes: a thread runs
after the other, three times, so that in each turn it finds what others handed it in the one before,
and in the third what depends on that, too.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import body
from tilewright.fuse.cuda import emit_stack
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arriving import Arriving
from tilewright.fuse.cuda.behind import Behind
from tilewright.fuse.cuda.emit import MATHEMATICS, constants, struct, text
from tilewright.fuse.cuda.emit_passing import layer
from tilewright.fuse.cuda.emit_stack import TYPES
from tilewright.fuse.cuda.emit_structs import POOLS, declared
from tilewright.fuse.cuda.pools import Pools
from tilewright.fuse.cuda.steps import Channels, Convolve, Each, Join, Program, Windows
from tilewright.fuse.cuda.steps_patches import PatchesProgram
from tilewright.model.layers import Pixels

Array = NDArray[Any]
HOST = r"""
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __restrict__
typedef unsigned int word;
struct Index { int x = 0, y = 0, z = 0; };
static Index threadIdx, blockIdx, blockDim, gridDim;
struct uchar4 { unsigned char x, y, z, w; };
struct int2 { int x, y; };
struct uint2 { word x, y; };
struct uint4 { word x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint2 make_uint2(word x, word y) { return {x, y}; }
static inline uint4 make_uint4(word x, word y, word z, word w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T> static inline T __ldg(const T* from) { return *from; }
static inline float __uint_as_float(word bits) { float x; std::memcpy(&x, &bits, 4); return x; }
static inline word __float_as_uint(float x) { word bits; std::memcpy(&bits, &x, 4); return bits; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline float maximum(float a, float b) { return a > b || a != a ? a : b; }
static inline float sigmoid(float x) { return 1 / (1 + expf(-x)); }
#if TW_PER_WORD == 2
static inline word pack(float low, float high)
{
    const _Float16 both[2] = {(_Float16)low, (_Float16)high};
    word found;
    std::memcpy(&found, both, 4);
    return found;
}
static inline float2 unpack(word bits)
{
    _Float16 both[2];
    std::memcpy(both, &bits, 4);
    return {(float)both[0], (float)both[1]};
}
static inline word operand(float x) { return __float_as_uint(x); }
#elif TW_TENSOR && TW_PARTS == 1
static inline word operand(float x) { return (__float_as_uint(x) + 0x1000) & 0xffffe000; }
#else
static inline word operand(float x) { return __float_as_uint(x); }
#endif
"""
HOST += "".join(
    f"static inline word {each}(word value) {{ {body(each)}; }}\n" for each in ("high", "low")
)
# A thread after the other.
ALONE = r"""
static inline void fetched() {}
static inline void write_four(word* to, word a, word b, word c, word d)
{
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}
static inline void __syncthreads() {}
static inline void __syncwarp() {}
// What a lane hands to another, in this turn and in the one before, by how many it has handed over.
static std::vector<float> handed[1024], found[1024];
static int turn;
static inline float __shfl_xor_sync(unsigned, float value, int reach)
{
    const size_t number = handed[threadIdx.x].size();
    handed[threadIdx.x].push_back(value);
    return turn == 0 ? value : found[threadIdx.x ^ reach][number];
}
"""
PUT = r"""
extern "C" void put(const float* sums, word* results, const word* added, int number, int count)
{
    Patches<Layer> patches;
    for (turn = 0; turn < 3; ++turn) {
        for (int thread = 0; thread < Patches<Layer>::ADDING; ++thread) {
            SUMS;
            std::memcpy(sum, sums + size_t(thread) * sizeof sum / 4, sizeof sum);
            threadIdx.x = thread;
            patches.put(sum, results, added, Work<Layer>(number), count);
        }
        for (int thread = 0; thread < 1024; ++thread) {
            found[thread].swap(handed[thread]);
            handed[thread].clear();
        }
    }
}
"""
ADD_UP = r"""
extern "C" void add_up(const void* memory, const float* bias, float* sums)
{
    Patches<Layer> patches;
    patches.memory = static_cast<const uint4*>(memory);
    in_shared = memory;
    patches.weights = 0;
    patches.pictures = Layer::STAGES * Patches<Layer>::WEIGHT_BYTES;
    for (int thread = 0; thread < Patches<Layer>::ADDING; ++thread) {
        SUMS;
        Patches<Layer>::Turns turns;
        threadIdx.x = thread;
        patches.add_up(sum, bias, turns);
        std::memcpy(sums + size_t(thread) * sizeof sum / 4, sum, sizeof sum);
    }
}
"""
BEHIND = r"""
extern "C" void behind(const word* const* given, word* results, int count, int step)
{
    const word* pictures[Layer::PARTS];
    for (int part = 0; part < Layer::PARTS; ++part)
        pictures[part] = given[part];
    for (int first = 0; first < step; ++first)
        put_behind<Layer>(pictures, results, count, first, step);
}
"""
POOLED = r"""
extern "C" void pooled(const word* given, word* results, int count, int step)
{
    for (int first = 0; first < step; ++first)
        put_pooled<Layer>(given, results, count, first, step);
}
"""
ARRIVED = r"""
extern "C" void arrived(const GIVEN* given, word* results, int count, int step)
{
    for (int first = 0; first < step; ++first)
        put_arrived<Layer>(given, results, count, first, step);
}
"""
# Nobody has to be waited for.
NOBODY = r"""
static inline word shared_address(const void*) { return 0; }
static inline void begin_barrier(word, int) {}
static inline void barriers_begun() {}
static inline void expect(word, int) {}
static inline void wait_for(word, int) {}
static inline void arrive(word) {}
static inline void arrive_when_copied(word) {}
static inline void copy(word, const word*, int, word) {}
template <int> static inline void copy_words(word, const word*, bool) {}
static inline void commit_fetches() {}
template <int> static inline void fetched_but() {}
static inline float4 read_piece(word) { return {}; }
static inline void write_piece(word, uint4) {}
static inline void seen_by_copies() {}
template <int, int> static inline void meet() {}
"""

# What a thread has of a product by tensor cores, which look for operands where a descriptor says:
# pieces of 16 bytes change places by the address that their row has.
WIDE = r"""
static const void* in_shared;
static inline unsigned long long described(word at, int apart)
{
    return at / 16 | (unsigned long long)(apart) << 32;
}
static inline float operand_at(unsigned long long rows, int row, int k)
{
    unsigned at = unsigned(rows) * 16 + row / 8 * int(rows >> 32) + row % 8 * 128;
    at += k * (4 / TW_PER_WORD);
    at ^= (at >> 7 & 7) << 4;
    const char* from = static_cast<const char*>(in_shared) + at;
#if TW_PER_WORD == 2
    _Float16 value;
    std::memcpy(&value, from, 2);
    return value;
#else
    word bits;
    std::memcpy(&bits, from, 4);
    return __uint_as_float(bits & 0xffffe000);
#endif
}
template <int COUNT> static inline void multiply_wide(
    float (&sum)[COUNT], unsigned long long rows, unsigned long long columns, int more = 1)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, warp = threadIdx.x / 32 % 4;
    for (int i = 0; i < COUNT; ++i) {
        const int row = 16 * warp + g + i / 2 % 2 * 8, column = i / 4 * 8 + 2 * t + i % 2;
        double found = more ? sum[i] : 0;
        for (int k = 0; k < 8 * TW_PER_WORD; ++k)
            found += double(operand_at(rows, row, k)) * operand_at(columns, column, k);
        sum[i] = float(found);
    }
}
"""


@cache
def missing() -> str | None:
    """Why nothing can be run so."""
    try:
        built('extern "C" _Float16 nothing(_Float16 x) { return x; }')
    except OSError:
        return "no C++ compiler that knows halves (gcc's g++)"
    return None


def put(
    made: PatchesProgram, sums: Array, out: Array, added: Array | None, number: int, count: int
) -> None:
    """What all lanes write of their sums, (thread, unit, sum), of a piece of work."""
    given = (each.ctypes.data_as(ctypes.c_void_p) for each in (sums, out))
    more = None if added is None else added.ctypes.data_as(ctypes.c_void_p)
    _library(made).put(*given, more, number, count)


def add_up(made: PatchesProgram, weights: Array, pictures: Array, bias: Array) -> Array:
    """The sums of all threads of what has come of a piece of work."""
    ring = np.zeros(made.stages * made.stage_words, np.uint32)
    ring[: len(weights)] = weights
    memory = np.concatenate([ring, pictures.ravel()])
    found = np.zeros((128 * made.groups, *made.sums), np.float32)
    given = (each.ctypes.data_as(ctypes.c_void_p) for each in (memory, bias, found))
    _library(made).add_up(*given)
    return found


def put_behind(plan: Behind, taken: Sequence[Array], count: int, step: int) -> Array:
    """What `step` threads in all write."""
    out = np.zeros((count, plan.result_words), np.uint32)
    pointers = (ctypes.c_void_p * len(taken))(*(each.ctypes.data for each in taken))
    library = _passing(plan.arithmetic, layer(plan), "behind.cuh", BEHIND)
    library.behind(pointers, out.ctypes.data_as(ctypes.c_void_p), count, step)
    return out


def put_pooled(plan: Pools, given: Array, count: int, step: int) -> Array:
    """What `step` threads in all write."""
    out = np.zeros((count, plan.result_words), np.uint32)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (given, out))
    library = _passing(plan.arithmetic, layer(plan), "pools.cuh", POOLED)
    library.pooled(*pointers, count, step)
    return out


def put_arrived(plan: Arriving, pixels: Pixels | None, given: Array, step: int) -> Array:
    """The same, of bytes where there are `pixels`, or of floats."""
    out = np.zeros((len(given), plan.result_words), np.uint32)
    given = np.ascontiguousarray(given)
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (given, out))
    run = ARRIVED.replace("GIVEN", TYPES["uint8" if pixels else "float32"])
    library = _passing(plan.arithmetic, layer(plan, pixels), "arriving.cuh", run)
    library.arrived(*pointers, len(given), step)
    return out


@cache
def _passing(arithmetic: Arithmetic, constants: str, file: str, run: str) -> ctypes.CDLL:
    blocks = text("passing.cuh"), text(file)
    return built("\n".join([*defines(arithmetic), HOST, ALONE, *blocks, constants, run]))


@cache
def _library(made: PatchesProgram) -> ctypes.CDLL:
    functions = (
        "static float before(float x) { return x; }", "static float after(float x) { return x; }",
    )  # fmt: skip
    values = {**constants(made), "POOL": POOLS[made.pool]}
    own = text(f"patches_{'tensor' if made.arithmetic.tensor else 'plain'}.cuh")
    source = "\n".join([
        *defines(made.arithmetic),
        f"#define SUMS float sum[{made.sums[0]}][{made.sums[1]}]", HOST, ALONE, text("panels.cuh"),
        NOBODY, WIDE, text("patches.cuh"), re.sub(r"^ *asm volatile\(.*\);$", ";", own, flags=re.M),
        struct("Layer", values, *functions), PUT, ADD_UP,
    ])  # fmt: skip
    return built(source, "-O1")


def defines(arithmetic: Arithmetic) -> list[str]:
    defines = {
        "TW_PER_WORD": arithmetic.per_word, "TW_TENSOR": int(arithmetic.tensor),
        "TW_PARTS": arithmetic.parts, "TW_TO_HALVES": 0, "TW_TO_OPERANDS": 1, "TW_TO_FLOATS": 2,
        "TW_POOL_MAX": 1, "TW_POOL_AVERAGE": 2, "TW_POOL_MAX_OF_EACH": 3, **MATHEMATICS,
    }  # fmt: skip
    return [f"#define {name} {value}" for name, value in defines.items()]


def built(source: str, *options: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "host.cpp", Path(folder) / "host.so"
        file.write_text(source)
        command = ["g++", "-std=c++17", "-w", "-shared", "-fPIC", *options, str(file)]
        done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr)
        return ctypes.CDLL(str(library))


# What is named, and not done.
NOT_DONE = r"""
#define TW_STEP 2
struct uchar2 { unsigned char x, y; };
static inline word __byte_perm(word, word, word) { return 0; }
#if TW_PER_WORD == 1
static inline word pack(float, float) { return 0; }
#endif
#if TW_TENSOR
template <class... T> static inline void multiply(T&&...) {}
template <class... T> static inline void multiply_half(T&&...) {}
#endif
template <class T> static inline T __shfl_xor_sync(unsigned, T value, int) { return value; }
"""
CONVOLVE = r"""
extern "C" void run(word* shared, int first, const word* parameters, const int* tables, word* out)
{
    word* own = shared + first;
    const int turn = 0;
    for (int warp = 0; warp < WARPS; ++warp)
        for (threadIdx.x = 0; threadIdx.x < 32; ++threadIdx.x)
            CALL
}
"""


def convolve(
    made: Program, step: Convolve, shared: Array, own: int, parameters: Array, tables: Array,
    out: Array,
) -> None:  # fmt: skip
    """A layer's sums and what becomes of them, without tensor cores: a lane after the other."""
    given = (each.ctypes.data_as(ctypes.c_void_p) for each in (parameters, tables, out))
    memory = shared.ctypes.data_as(ctypes.c_void_p)
    _sums(made, step).run(memory, own, *given)


@cache
def _sums(made: Program, step: Convolve) -> ctypes.CDLL:
    (call,) = emit_stack.convolve_call(made, step, [step.index])
    main = CONVOLVE.replace("WARPS", str(step.warps)).replace("CALL", call)
    blocks = [*defines(made.arithmetic), HOST, NOT_DONE, text("sums.cuh")]
    return built("\n".join([*blocks, *declared(step), main]), "-O1")


WITHOUT_SUMS = r"""
extern "C" void run(
    word* shared, int first, const word* parameters, const void* const* given, int start, int turn,
    word* out)
{
    word* own = shared + first;
    const int item = 0;
    NAMES
    for (int thread = 0; thread < THREADS; ++thread) {
        CALL
    }
}
"""


def without_sums(
    made: Program, step: Channels | Each | Join | Windows, shared: Array, own: int,
    parameters: Array, given: Sequence[Array], start: int, turn: int, out: Array,
) -> None:  # fmt: skip
    """A layer that is no sum: a thread after the other. `given` are images, each of an input."""
    each = [np.ascontiguousarray(image).ctypes.data for image in given]
    pointers = (ctypes.c_void_p * len(each))(*each)
    memory, weights, results = (
        array.ctypes.data_as(ctypes.c_void_p) for array in (shared, parameters, out)
    )
    _without_sums(made, step).run(memory, own, weights, pointers, start, turn, results)


@cache
def _without_sums(made: Program, step: Channels | Each | Join | Windows) -> ctypes.CDLL:
    names = [
        f"const auto {'images' if number == 0 else f'other{number}'} = "
        f"static_cast<const {emit_stack.TYPES[kind]}*>(given[{number}]);"
        for number, kind in enumerate((made.source, *made.more))
    ]
    main = WITHOUT_SUMS.replace("NAMES", "\n    ".join([*names, "const int image = 0;"]))
    main = main.replace("THREADS", str(step.threads))
    main = main.replace("CALL", "\n        ".join(emit_stack.calls(made, step)))
    blocks = [text(name) for name in ("sums.cuh", "pictures.cuh", "branches.cuh")]
    parts = [*defines(made.arithmetic), HOST, NOT_DONE, *blocks, *declared(step), main]
    return built("\n".join(parts), "-O1")
