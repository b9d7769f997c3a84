// What the vector kernels of these samples have in common: going through device memory tile by tile.
#ifndef TILES_H
#define TILES_H

#include "kernel_operator.h"

namespace tiles {

constexpr int32_t DEPTH = 2;  // buffers of a queue: while one is worked on, the next one is filled

// z = operation(x, y). Every block takes its share of `total` elements and goes through it in tiles: copy in, compute,
// copy out. `total` is a multiple of blocks * tile, and a tile of 32 bytes.
template <typename T, typename Operation>
__aicore__ inline void binary(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t total, uint32_t tile, Operation operation)
{
    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::VECIN, DEPTH> xQueue;
    AscendC::TQue<AscendC::TPosition::VECIN, DEPTH> yQueue;
    AscendC::TQue<AscendC::TPosition::VECOUT, DEPTH> zQueue;
    pipe.InitBuffer(xQueue, DEPTH, tile * sizeof(T));
    pipe.InitBuffer(yQueue, DEPTH, tile * sizeof(T));
    pipe.InitBuffer(zQueue, DEPTH, tile * sizeof(T));

    const uint32_t share = total / AscendC::GetBlockNum();
    const uint32_t first = share * AscendC::GetBlockIdx();
    AscendC::GlobalTensor<T> xGlobal;
    AscendC::GlobalTensor<T> yGlobal;
    AscendC::GlobalTensor<T> zGlobal;
    xGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(x) + first, share);
    yGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(y) + first, share);
    zGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ T *>(z) + first, share);

    for (uint32_t at = 0; at < share; at += tile) {
        AscendC::LocalTensor<T> xIn = xQueue.AllocTensor<T>();
        AscendC::LocalTensor<T> yIn = yQueue.AllocTensor<T>();
        AscendC::DataCopy(xIn, xGlobal[at], tile);
        AscendC::DataCopy(yIn, yGlobal[at], tile);
        xQueue.EnQue(xIn);
        yQueue.EnQue(yIn);

        AscendC::LocalTensor<T> xReady = xQueue.DeQue<T>();
        AscendC::LocalTensor<T> yReady = yQueue.DeQue<T>();
        AscendC::LocalTensor<T> zOut = zQueue.AllocTensor<T>();
        operation(zOut, xReady, yReady, tile);
        zQueue.EnQue(zOut);
        xQueue.FreeTensor(xReady);
        yQueue.FreeTensor(yReady);

        AscendC::LocalTensor<T> zReady = zQueue.DeQue<T>();
        AscendC::DataCopy(zGlobal[at], zReady, tile);
        zQueue.FreeTensor(zReady);
    }
}

template <typename T>
struct Add {
    __aicore__ inline void operator()(const AscendC::LocalTensor<T> &z, const AscendC::LocalTensor<T> &x,
                                      const AscendC::LocalTensor<T> &y, uint32_t count) const
    {
        AscendC::Add(z, x, y, count);
    }
};

template <typename T>
struct Multiply {
    __aicore__ inline void operator()(const AscendC::LocalTensor<T> &z, const AscendC::LocalTensor<T> &x,
                                      const AscendC::LocalTensor<T> &y, uint32_t count) const
    {
        AscendC::Mul(z, x, y, count);
    }
};

}  // namespace tiles

#endif
