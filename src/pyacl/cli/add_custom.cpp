// z = x + y for half numbers: what `pyacl demo` compiles where there is an NPU. One block adds an equal part of the vectors.
#include "kernel_operator.h"

using namespace AscendC;

constexpr int32_t TOTAL = 8 * 2048;  // elements
constexpr int32_t TILE = 1024;       // elements of one copy to the unified buffer

class KernelAdd {
public:
    __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z)
    {
        part = TOTAL / GetBlockNum();
        int32_t start = part * GetBlockIdx();
        xGm.SetGlobalBuffer((__gm__ half *)x + start, part);
        yGm.SetGlobalBuffer((__gm__ half *)y + start, part);
        zGm.SetGlobalBuffer((__gm__ half *)z + start, part);
        pipe.InitBuffer(inX, 2, TILE * sizeof(half));
        pipe.InitBuffer(inY, 2, TILE * sizeof(half));
        pipe.InitBuffer(outZ, 2, TILE * sizeof(half));
    }
    __aicore__ inline void Process()
    {
        for (int32_t at = 0; at < part; at += TILE) {
            LocalTensor<half> x = inX.AllocTensor<half>();
            LocalTensor<half> y = inY.AllocTensor<half>();
            DataCopy(x, xGm[at], TILE);
            DataCopy(y, yGm[at], TILE);
            inX.EnQue(x);
            inY.EnQue(y);
            x = inX.DeQue<half>();
            y = inY.DeQue<half>();
            LocalTensor<half> z = outZ.AllocTensor<half>();
            Add(z, x, y, TILE);
            outZ.EnQue(z);
            inX.FreeTensor(x);
            inY.FreeTensor(y);
            z = outZ.DeQue<half>();
            DataCopy(zGm[at], z, TILE);
            outZ.FreeTensor(z);
        }
    }

private:
    int32_t part;
    TPipe pipe;
    TQue<QuePosition::VECIN, 2> inX, inY;
    TQue<QuePosition::VECOUT, 2> outZ;
    GlobalTensor<half> xGm, yGm, zGm;
};

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z)
{
    KernelAdd add;
    add.Init(x, y, z);
    add.Process();
}
