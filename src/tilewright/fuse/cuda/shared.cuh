// Shared memory as copies and tensor cores see it: barriers that copies arrive at when they are done,
// and where operands lie. Needs words.cuh.

__device__ __forceinline__ word shared_address(const void* at)
{
    return word(__cvta_generic_to_shared(at));
}

// What tensor cores are told of operands: so many bytes are between groups of 8 rows, and pieces
// change places over 128 bytes, by where they lie.
__device__ __forceinline__ unsigned long long described(word at, int apart)
{
    return ((at & 0x3ffff) >> 4) | 1ull << 16 | (unsigned long long)(apart >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void begin_barrier(word barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void arrive(word barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void expect(word barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                 "r"(bytes) : "memory");
}

__device__ __forceinline__ void wait_for(word barrier, int phase)
{
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(barrier), "r"(phase) : "memory");
}

__device__ __forceinline__ void copy(word to, const word* from, int bytes, word barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                 "%2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// Words, four of them or fewer, or zeros.
template <int WORDS>
__device__ __forceinline__ void copy_words(word to, const word* from, bool there)
{
    if constexpr (WORDS == 4)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                     "r"(there ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
                     "n"(4 * WORDS), "r"(there ? 4 * WORDS : 0) : "memory");
}

// When all but so many groups of these are there.
template <int GROUPS>
__device__ __forceinline__ void fetched_but()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
}

__device__ __forceinline__ float4 read_piece(word at)
{
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(at) : "memory");
    return x;
}

__device__ __forceinline__ void write_piece(word at, uint4 x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w) : "memory");
}

// When all that this thread has copied so is there.
__device__ __forceinline__ void arrive_when_copied(word barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barriers_begun()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// What threads wrote is seen by copies and tensor cores.
__device__ __forceinline__ void seen_by_copies()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// So many threads wait for each other.
template <int BARRIER, int THREADS>
__device__ __forceinline__ void meet()
{
    asm volatile("bar.sync %0, %1;" ::"n"(BARRIER), "n"(THREADS) : "memory");
}

// Four warps leave registers to others, or take what was left.
template <int LEFT>
__device__ __forceinline__ void give_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(LEFT));
}

template <int ALL>
__device__ __forceinline__ void take_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(ALL));
}

// ---- blocks of a cluster: each sees what the others have ----------------------------------------

__device__ __forceinline__ word in_block(word at, int block)
{
    word there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(block));
    return there;
}

__device__ __forceinline__ void arrive_in(word barrier, int block)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(in_block(barrier, block))
                 : "memory");
}

// To the same place of all blocks of the cluster.
template <int BLOCKS>
__device__ __forceinline__ void copy_to_all(word to, const word* from, int bytes, word barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"(from), "r"(bytes),
                 "r"(barrier), "h"((unsigned short)((1 << BLOCKS) - 1)) : "memory");
}

__device__ __forceinline__ float4 in_cluster(word at)
{
    float4 found;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(found.x), "=f"(found.y), "=f"(found.z), "=f"(found.w) : "r"(at) : "memory");
    return found;
}

__device__ __forceinline__ void arrive_in_cluster()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ __forceinline__ void wait_in_cluster()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
