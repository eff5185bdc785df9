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
