// z = x + y
#include "../tiles.h"

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t total)
{
    tiles::binary<int32_t>(x, y, z, total, 256, tiles::Add<int32_t>());
}
