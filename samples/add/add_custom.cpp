// z = x + y for 8 x 2048 half numbers on 8 blocks: every argument is a pointer to device memory.
#include "../tiles.h"

extern "C" __global__ __aicore__ void add_custom(GM_ADDR x, GM_ADDR y, GM_ADDR z)
{
    tiles::binary<half>(x, y, z, 8 * 2048, 128, tiles::Add<half>());
}
