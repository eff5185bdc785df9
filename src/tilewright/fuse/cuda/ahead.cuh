// Parameters that only later layers need, while the first is computed. Needs shared.cuh.
//
// On Hopper and after it is one copy that one thread asks for: 54,400 bytes, asked for by 512 threads
// 16 at a time, hold up the first layer by 740 cycles (H200, 2026-11-18).

// All threads of the block meet between this and `fetched_ahead`.
template <int BYTES, int THREADS>
__device__ __forceinline__ void fetch_ahead(word* to, const word* from, word* barrier)
{
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == THREADS - 32) {  // of the last warp: the first ones have more to do
        begin_barrier(shared_address(barrier), 1);
        barriers_begun();
        expect(shared_address(barrier), BYTES);
        copy(shared_address(to), from, BYTES, shared_address(barrier));
    }
#else
    fetch<BYTES, THREADS>(to, from, threadIdx.x);
#endif
}

__device__ __forceinline__ void fetched_ahead(word* barrier)
{
    fetched();
#if __CUDA_ARCH__ >= 900
    wait_for(shared_address(barrier), 0);
#endif
}
