// z = x + y with threads (Ascend 950): every block runs 256 threads, every thread adds two numbers.
//
// The function for the threads is called from a vector kernel with a fixed number of them, so the object is an ordinary
// one, whose argument block is (x, y, z, total_length): loading and launching it needs no SIMT interface of the runtime.
#include "kernel_operator.h"
#include "simt_api/asc_simt.h"

constexpr uint32_t THREADS = 256;

__simt_vf__ __launch_bounds__(THREADS) inline void add_threads(__gm__ float *x, __gm__ float *y, __gm__ float *z,
                                                               uint64_t total_length)
{
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < total_length) {
        z[i] = x[i] + y[i];
    }
}

extern "C" __global__ __vector__ void add_custom(__gm__ float *x, __gm__ float *y, __gm__ float *z,
                                                 uint64_t total_length)
{
    asc_vf_call<add_threads>(dim3{THREADS, 1, 1}, x, y, z, total_length);
}
