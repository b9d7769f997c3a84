// z = x * y + x, for a piece of a long vector
#include "../tiles.h"

struct MultiplyAdd {
    __aicore__ inline void operator()(const AscendC::LocalTensor<float> &z, const AscendC::LocalTensor<float> &x,
                                      const AscendC::LocalTensor<float> &y, uint32_t count) const
    {
        AscendC::Mul(z, x, y, count);
        AscendC::Add(z, z, x, count);
    }
};

extern "C" __global__ __aicore__ void scale_add(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t total)
{
    tiles::binary<float>(x, y, z, total, 512, MultiplyAdd());
}
