// y = x * factor: what the kernel has to know comes as a struct, by value.
#include "../tiles.h"

struct Tiling {
    uint32_t total;
    uint32_t tile;
    float factor;
};

struct Scale {
    float factor;

    __aicore__ inline void operator()(const AscendC::LocalTensor<float> &z, const AscendC::LocalTensor<float> &x,
                                      const AscendC::LocalTensor<float> &, uint32_t count) const
    {
        AscendC::Muls(z, x, factor, count);
    }
};

extern "C" __global__ __aicore__ void scale_custom(GM_ADDR x, GM_ADDR y, Tiling tiling)
{
    tiles::binary<float>(x, x, y, tiling.total, tiling.tile, Scale{tiling.factor});
}
