"""The whole text of kernels without tensor cores, run on this machine: patches, panels, stacks.

Every thread of a block is a fiber, which goes on until it has to wait. Who goes on next is left to
chance, and so is when copies arrive: what a kernel leaves to chance shows in some of the runs.
Shared memory is not a number wherever a copy is under way.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.memory import POISON
from tests.fuse.cuda.on_host import HOST, built, defines
from tilewright.fuse.cuda import emit_panels
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.emit import activation, constants, struct, text
from tilewright.fuse.cuda.emit_patches import kernel_of
from tilewright.fuse.cuda.emit_stack import program_text
from tilewright.fuse.cuda.emit_structs import POOLS
from tilewright.fuse.cuda.panels import Panels, in_whole_panels
from tilewright.fuse.cuda.panels_ways import Many
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Program
from tilewright.fuse.cuda.steps_patches import PatchesProgram

Array = NDArray[Any]
FIBERS = r"""
#include <deque>
#include <map>
#include <random>
#include <string>
#include <ucontext.h>
#define __global__
#define __shared__
#define __align__(bytes)
#define __launch_bounds__(threads, blocks)
constexpr int SHARED = 232448, STACK = 65536, THREADS = 1024;
alignas(1024) static uint4 memory[SHARED / 16];
static int used;  // bytes of it that the kernel asked for
static const char *begin[2], *end[2];  // of what lies in device memory
static std::string problem;
static long happened;
static std::mt19937 chance;

static void fail(const char* why) { if (problem.empty()) problem = why; }

struct Copy { word to; const word* from; int bytes, there; word barrier; };
struct Fiber
{
    ucontext_t at;
    bool done;
    std::deque<Copy> copies;
    long met, named, handed, in_block, in_group;
};
static Fiber fibers[THREADS];
static std::vector<float> shuffled[THREADS];
static char stacks[THREADS][STACK];
static ucontext_t scheduler;
static int threads;
static long met_in_block, met_by_name;
static long met_in_warp[THREADS / 32], met_in_group[16];
static std::deque<Copy> bulk;

static void wait() { swapcontext(&fibers[threadIdx.x].at, &scheduler); }
template <class T> static void until(T there)
{
    while (!there() && problem.empty())
        wait();
    ++happened;
}

// Barriers: so many arrive, and so many bytes, then another phase begins.
struct Barrier { int count = 0, missing = 0, phase = 0; long bytes = 0; };
static std::map<word, Barrier> barriers;

static word shared_address(const void* at) { return word((const char*)at - (const char*)memory); }
static void begin_barrier(word at, int count) { barriers[at] = {count, count}; }
static void turn(Barrier& barrier)
{
    ++happened;
    if (barrier.missing < 0)
        fail("more arrive than are waited for");
    if (barrier.missing == 0 && barrier.bytes == 0) {
        barrier.phase ^= 1;
        barrier.missing = barrier.count;
    }
}
static void arrive(word at) { --barriers[at].missing; turn(barriers[at]); }
static void expect(word at, int bytes)
{
    barriers[at].bytes += bytes;
    arrive(at);
}
static void wait_for(word at, int phase) { until([&] { return barriers[at].phase != phase; }); }

static void set_out(std::deque<Copy>& copies, const Copy& copy)
{
    const char* from = (const char*)copy.from;
    const int whole = copy.bytes < 16 ? copy.bytes : 16;
    if (copy.to % whole || int(copy.to) + copy.bytes > used)
        fail("a copy to where there is no room for it");
    else if (copy.there && (size_t(from) % whole
             || !((from >= begin[0] && from + copy.bytes <= end[0])
                  || (from >= begin[1] && from + copy.bytes <= end[1]))))
        fail("a copy from where nothing is");
    else
        std::memset((char*)memory + copy.to, 0xff, copy.bytes);
    copies.push_back(copy);
    ++happened;
}
static void set_down(std::deque<Copy>& copies, int which)
{
    const Copy copy = copies[which];
    copies.erase(copies.begin() + which);
    if (!problem.empty())
        return;
    if (copy.bytes && copy.there)
        std::memcpy((char*)memory + copy.to, copy.from, copy.bytes);
    else if (copy.bytes)
        std::memset((char*)memory + copy.to, 0, copy.bytes);
    if (copy.bytes > 16)
        barriers[copy.barrier].bytes -= copy.bytes;
    if (copy.barrier && copy.bytes <= 16)
        arrive(copy.barrier);
    else if (copy.barrier)
        turn(barriers[copy.barrier]);
    ++happened;
}
static void copy(word to, const word* from, int bytes, word barrier)
{
    set_out(bulk, {to, from, bytes, 1, barrier});
}
template <int WORDS> static void copy_words(word to, const word* from, bool there)
{
    set_out(fibers[threadIdx.x].copies, {to, from, 4 * WORDS, there, 0});
}
static void arrive_when_copied(word barrier)
{
    fibers[threadIdx.x].copies.push_back({0, nullptr, 0, 0, barrier});
}
static void fetched()
{
    while (!fibers[threadIdx.x].copies.empty())
        set_down(fibers[threadIdx.x].copies, 0);
}
static void commit_fetches() { fibers[threadIdx.x].copies.push_back({}); }
template <int GROUPS> static void fetched_but()
{
    std::deque<Copy>& copies = fibers[threadIdx.x].copies;
    const auto committed = [&] {
        int found = 0;
        for (const Copy& each : copies)
            found += each.bytes == 0 && !each.barrier;
        return found;
    };
    while (committed() > GROUPS)
        set_down(copies, 0);
}
static void write_four(word* to, word a, word b, word c, word d)
{
    to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}
static float4 read_piece(word at) { return *(const float4*)((const char*)memory + at); }
static void write_piece(word at, uint4 piece) { *(uint4*)((char*)memory + at) = piece; }
static void barriers_begun() {}
static void seen_by_copies() {}
template <int LEFT> static void give_registers() {}
template <int ALL> static void take_registers() {}
static void __syncthreads()
{
    const long all = threads * ++fibers[threadIdx.x].in_block;
    ++met_in_block;
    until([&] { return met_in_block >= all; });
}
template <int BARRIER, int COUNT> static void meet()
{
    const long all = COUNT * ++fibers[threadIdx.x].named;
    ++met_by_name;
    until([&] { return met_by_name >= all; });
}
// A block is a cluster of its own.
static word in_block(word, int) { fail("there is no other block"); return 0; }
static void arrive_in(word, int) { fail("there is no other block"); }
template <int BLOCKS> static void copy_to_all(word, const word*, int, word) { in_block(0, 0); }
static float4 in_cluster(word) { in_block(0, 0); return {}; }
static void arrive_in_cluster() { in_block(0, 0); }
static void wait_in_cluster() { in_block(0, 0); }
static void __syncwarp()
{
    const int warp = threadIdx.x / 32;
    const long all = 32 * ++fibers[threadIdx.x].met;
    ++met_in_warp[warp];
    until([&] { return met_in_warp[warp] >= all; });
}
static float __shfl_xor_sync(unsigned, float value, int reach)
{
    const int other = threadIdx.x ^ reach;
    const long number = fibers[threadIdx.x].handed++;
    shuffled[threadIdx.x].push_back(value);
    until([&] { return long(shuffled[other].size()) > number; });
    return problem.empty() ? shuffled[other][number] : value;
}
"""
# What stacks name besides. `fetch` and `softmax` are words.cuh's own.
STACKS = r"""
#define __constant__ static const
#define TW_STEP 2
struct uchar2 { unsigned char x, y; };
static inline word pack(float, float) { return 0; }
static inline word __byte_perm(word, word, word) { return 0; }
static void fetch_16(void* to, const void* from)
{
    set_out(fibers[threadIdx.x].copies, {shared_address(to), (const word*)from, 16, 1, 0});
}
static void fetch_4(void* to, const void* from)
{
    set_out(fibers[threadIdx.x].copies, {shared_address(to), (const word*)from, 4, 1, 0});
}
static void fetched_but_last() { fetched_but<1>(); }
template <int COUNT> static void together(int group)
{
    const long all = COUNT * ++fibers[threadIdx.x].in_group;
    ++met_in_group[group];
    until([&] { return met_in_group[group] >= all; });
}
"""
MAIN = r"""
static const word *given, *parameters, *added;
static word* results;
static int count;
static void thread()
{
    kernel(CALLED);
    fibers[threadIdx.x].done = true;
    ++happened;
    wait();
}
extern "C" const char* run(const word* images, long words, word* out, const word* weights,
                           long weight_words, const word* more, int images_count, int blocks,
                           int rows, int seed, int block_threads, int shared_bytes)
{
    problem.clear();
    chance.seed(seed);
    given = images, results = out, parameters = weights, added = more, count = images_count;
    begin[0] = (const char*)images, end[0] = begin[0] + 4 * words;
    begin[1] = (const char*)weights, end[1] = begin[1] + 4 * weight_words;
    threads = block_threads, used = shared_bytes, gridDim.x = blocks, gridDim.y = rows;
    for (int block = 0; block < blocks * rows && problem.empty(); ++block) {
        blockIdx.x = block % blocks, blockIdx.y = block / blocks;
        std::memset(memory, 0xff, sizeof memory);
        barriers.clear();
        met_in_block = met_by_name = 0;
        std::fill(std::begin(met_in_warp), std::end(met_in_warp), 0);
        std::fill(std::begin(met_in_group), std::end(met_in_group), 0);
        for (int t = 0; t < threads; ++t) {
            Fiber& fiber = fibers[t];
            fiber.done = false, fiber.met = fiber.named = fiber.handed = 0;
            fiber.in_block = fiber.in_group = 0;
            fiber.copies.clear();
            shuffled[t].clear();
            getcontext(&fiber.at);
            fiber.at.uc_stack.ss_sp = stacks[t];
            fiber.at.uc_stack.ss_size = STACK;
            makecontext(&fiber.at, thread, 0);
        }
        const int warps = threads / 32;
        int idle = 0;
        for (bool left = true; left && problem.empty();) {
            const long before = happened;
            const int slow = chance() % 4;  // those who add up, who fetch, some threads, or copies
            for (int i = 0; i < warps; ++i) {
                const int warp = chance() % warps, first = chance() % 32;
                if (slow == (warp < warps - 4 ? 0 : 1))
                    continue;
                for (int lane = 0; lane < 32 && problem.empty(); ++lane) {
                    threadIdx.x = warp * 32 + (first + lane) % 32;
                    if (!fibers[threadIdx.x].done && !(slow == 2 && chance() % 3 == 0))
                        swapcontext(&scheduler, &fibers[threadIdx.x].at);
                }
            }
            // With odd seeds only when all wait.
            while (slow != 3 && (seed % 2 == 0 || idle) && !bulk.empty() && chance() % 2)
                set_down(bulk, chance() % bulk.size());
            for (int t = 0; slow != 3 && t < threads; ++t)
                while (!fibers[t].copies.empty() && chance() % 8)
                    set_down(fibers[t].copies, 0);
            left = false;
            for (int t = 0; t < threads; ++t)
                left |= !fibers[t].done;
            idle = happened == before ? idle + 1 : 0;
            if (idle > 60)
                fail("all wait for each other");
        }
        if (problem.empty() && !bulk.empty())
            fail("copies are under way when all have left");
        bulk.clear();
    }
    return problem.c_str();
}
"""


def run(
    made: PatchesProgram, parameters: Array, images: Array, added: Array | None = None,
    *, shared_bytes: int, blocks: int, seed: int, change: tuple[str, str] | None = None,
) -> Array | str:  # fmt: skip
    """The results of all images, as words, or what went wrong. `change`: other text for some."""
    rows = in_whole_panels(len(images)) if made.to_panels else len(images)
    out = _aligned(np.full(rows * made.result_words, 0 if made.to_panels else POISON, np.uint32))
    more = None if added is None else _aligned(added.reshape(-1))
    library = _patches(made, change)
    wrong = _run(library, images, parameters, out, more, len(images), (blocks, 1), seed,
                 made.threads, shared_bytes)  # fmt: skip
    return wrong or (out if made.to_panels else out.reshape(rows, -1))


def run_many(
    plan: Panels, how: Many, parameters: Array, panels: Array, count: int, *, seed: int,
    change: tuple[str, str] | None = None,
) -> Array | str:  # fmt: skip
    """The same of a fully connected layer of so many images in panels."""
    panelled = plan.gives == "panels"
    rows = in_whole_panels(count) if panelled else count
    out = _aligned(np.full(rows * plan.result_words, 0 if panelled else POISON, np.uint32))
    across, down, _ = plan.grid(how, count)
    wrong = _run(_panels(plan, how, change), panels, parameters, out, None, count, (across, down),
                 seed, plan.threads_of(how), plan.bytes_of(how))  # fmt: skip
    return wrong or out


def run_stack(
    plan: Stack, made: Program, parameters: Array, images: Array, *, seed: int, blocks: int,
    arch: int = 900, change: tuple[str, str] | None = None,
) -> Array | str:  # fmt: skip
    """The same of layers in one kernel, whose images are bytes, as it is compiled for a GPU of this
    architecture."""
    out = _aligned(np.full(len(images) * made.result_words, POISON, np.uint32))
    wrong = _run(_stack(made, arch, change), images.view(np.uint32), parameters, out,
                 plan.tables[0].view(np.uint32), len(images), (blocks, 1), seed, plan.threads,
                 plan.shared_bytes)  # fmt: skip
    return wrong or out.reshape(len(images), -1)


def _run(
    library: ctypes.CDLL, given: Array, parameters: Array, out: Array, more: Array | None,
    count: int, grid: tuple[int, int], seed: int, threads: int, shared_bytes: int,
) -> str:  # fmt: skip
    """What went wrong."""
    taken = [_aligned(each.reshape(-1)) for each in (given, parameters)]
    library.run.restype = ctypes.c_char_p
    wrong: bytes = library.run(
        _at(taken[0]), ctypes.c_long(taken[0].size), _at(out), _at(taken[1]),
        ctypes.c_long(taken[1].size), None if more is None else _at(more), count, *grid, seed,
        threads, shared_bytes,
    )  # fmt: skip
    return wrong.decode()


def _aligned(words: Array) -> Array:
    """On 64 bytes, as device memory is."""
    room = np.empty(words.size + 16, np.uint32)
    first = -room.ctypes.data % 64 // 4
    room[first : first + words.size] = words
    return room[first : first + words.size]


def _at(words: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(words.ctypes.data)


@cache
def _patches(made: PatchesProgram, change: tuple[str, str] | None) -> ctypes.CDLL:
    functions = activation("before", made.before), activation("after", made.activations)
    values = {**constants(made), "POOL": POOLS[made.pool]}
    own = struct("Layer", values, *functions), kernel_of(made, "kernel")
    called = "given, results, parameters, count" + ", added" * made.added
    return _built(made.arithmetic, ("patches.cuh", "patches_plain.cuh"), own, called, change)


@cache
def _panels(plan: Panels, how: Many, change: tuple[str, str] | None) -> ctypes.CDLL:
    own = emit_panels.kernel_of(plan, how, "kernel", None, "panels")
    called = "reinterpret_cast<const uint4*>(given), results, parameters, count"
    return _built(plan.arithmetic, ("panels_many.cuh", "panels_plain.cuh"), (own,), called, change)


@cache
def _stack(made: Program, arch: int, change: tuple[str, str] | None) -> ctypes.CDLL:
    whole, words = program_text(made, "kernel"), text("words.cuh")
    own = [re.search(rf"template <[^>]*>[^}}]*\b{name}\(.*?\n}}\n", words, re.DOTALL)
           for name in ("fetch", "softmax")]  # fmt: skip
    for file in ("words.cuh", "shared.cuh"):
        whole = whole.replace(text(file), "")
    if change:
        assert change[0] in whole, change[0]
        whole = whole.replace(*change)
    called = "(const unsigned char*)given, results, parameters, (const int*)added, count"
    return built(
        "\n".join([
            f"#define __CUDA_ARCH__ {arch}", *defines(made.arithmetic), HOST, FIBERS, STACKS,
            *(each[0] for each in own if each), whole, MAIN.replace("CALLED", called),
        ]),
        "-O1",
    )  # fmt: skip


def _built(
    arithmetic: Arithmetic, files: Sequence[str], own: Sequence[str], called: str,
    change: tuple[str, str] | None,
) -> ctypes.CDLL:  # fmt: skip
    blocks = "\n".join(map(text, files))
    if change:
        assert change[0] in blocks, change[0]
        blocks = blocks.replace(*change)
    kernel = "\n".join(own).replace("__shared__ unsigned", "static unsigned")
    return built(
        "\n".join([
            *defines(arithmetic), HOST, FIBERS, text("panels.cuh"), blocks, kernel,
            MAIN.replace("CALLED", called),
        ]),
        "-O1",
    )  # fmt: skip
