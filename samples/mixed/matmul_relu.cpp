// c = max(a x b, 0) on cube and vector cores together: in every block the cube core multiplies 32 rows of a by b, then two
// vector cores take 16 rows of the product each. A flag between the cores says that the product is there.
#include "kernel_operator.h"

constexpr uint32_t ROWS = 32;     // of a and c in one block
constexpr uint32_t INNER = 64;    // columns of a, rows of b
constexpr uint32_t COLUMNS = 32;  // of b and c
constexpr uint32_t EDGE = 16;     // of the fractals that the cube unit works on, in half numbers
constexpr uint32_t FRACTAL = EDGE * EDGE;
constexpr uint16_t PRODUCT_READY = 0;

// One matrix product of half numbers into float ones, each matrix in one piece.
class Product {
public:
    __aicore__ inline void Run(GM_ADDR a, GM_ADDR b, GM_ADDR product)
    {
        const uint32_t block = AscendC::GetBlockIdx();
        aGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(a) + block * ROWS * INNER, ROWS * INNER);
        bGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ half *>(b), INNER * COLUMNS);
        cGlobal.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(product) + block * ROWS * COLUMNS, ROWS * COLUMNS);
        pipe.InitBuffer(aL1, 1, ROWS * INNER * sizeof(half));
        pipe.InitBuffer(bL1, 1, INNER * COLUMNS * sizeof(half));
        pipe.InitBuffer(aL0, 1, ROWS * INNER * sizeof(half));
        pipe.InitBuffer(bL0, 1, INNER * COLUMNS * sizeof(half));
        pipe.InitBuffer(cL0, 1, ROWS * COLUMNS * sizeof(float));
        CopyIn(aL1, aGlobal, ROWS, INNER);
        CopyIn(bL1, bGlobal, INNER, COLUMNS);
        Split(aL0, aL1, ROWS / EDGE, INNER / EDGE, false);
        Split(bL0, bL1, INNER / EDGE, COLUMNS / EDGE, true);
        Multiply();
        CopyOut();
    }

private:
    // rows of global memory into the fractals of L1
    template <typename Queue>
    __aicore__ inline void CopyIn(Queue &queue, const AscendC::GlobalTensor<half> &from, uint32_t rows, uint32_t columns)
    {
        AscendC::LocalTensor<half> to = queue.template AllocTensor<half>();
        AscendC::Nd2NzParams shape;
        shape.ndNum = 1;
        shape.nValue = rows;
        shape.dValue = columns;
        shape.srcNdMatrixStride = 0;
        shape.srcDValue = columns;
        shape.dstNzC0Stride = rows;
        shape.dstNzNStride = 1;
        shape.dstNzMatrixStride = 0;
        AscendC::DataCopy(to, from, shape);
        queue.EnQue(to);
    }

    // L1 into the order in which the cube unit reads its operands
    template <typename To, typename From>
    __aicore__ inline void Split(To &to, From &from, uint32_t down, uint32_t across, bool transpose)
    {
        AscendC::LocalTensor<half> source = from.template DeQue<half>();
        AscendC::LocalTensor<half> target = to.template AllocTensor<half>();
        AscendC::LoadData2DParams load;
        load.repeatTimes = across;
        load.srcStride = down;
        load.dstGap = 0;
        load.ifTranspose = transpose;
        for (uint32_t i = 0; i < down; ++i) {
            AscendC::LoadData(target[i * across * FRACTAL], source[i * FRACTAL], load);
        }
        to.EnQue(target);
        from.FreeTensor(source);
    }

    __aicore__ inline void Multiply()
    {
        AscendC::LocalTensor<half> left = aL0.DeQue<half>();
        AscendC::LocalTensor<half> right = bL0.DeQue<half>();
        AscendC::LocalTensor<float> result = cL0.AllocTensor<float>();
        AscendC::MmadParams shape;
        shape.m = ROWS;
        shape.n = COLUMNS;
        shape.k = INNER;
        AscendC::Mmad(result, left, right, shape);
        cL0.EnQue<float>(result);
        aL0.FreeTensor(left);
        bL0.FreeTensor(right);
    }

    __aicore__ inline void CopyOut()
    {
        AscendC::LocalTensor<float> result = cL0.DeQue<float>();
        AscendC::FixpipeParamsV220 shape;
        shape.nSize = COLUMNS;
        shape.mSize = ROWS;
        shape.srcStride = ROWS;
        shape.dstStride = COLUMNS;
        shape.ndNum = 1;
        shape.srcNdStride = 0;
        shape.dstNdStride = 0;
        AscendC::Fixpipe(cGlobal, result, shape);
        cL0.FreeTensor(result);
    }

    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::A1, 1> aL1;
    AscendC::TQue<AscendC::TPosition::B1, 1> bL1;
    AscendC::TQue<AscendC::TPosition::A2, 1> aL0;
    AscendC::TQue<AscendC::TPosition::B2, 1> bL0;
    AscendC::TQue<AscendC::TPosition::CO1, 1> cL0;
    AscendC::GlobalTensor<half> aGlobal;
    AscendC::GlobalTensor<half> bGlobal;
    AscendC::GlobalTensor<float> cGlobal;
};

__aicore__ inline void Relu(GM_ADDR product, GM_ADDR c)
{
    constexpr uint32_t SHARE = ROWS / 2 * COLUMNS;
    const uint32_t first = AscendC::GetBlockIdx() * SHARE;  // vector cores count on through all blocks
    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::VECIN, 1> in;
    AscendC::TQue<AscendC::TPosition::VECOUT, 1> out;
    pipe.InitBuffer(in, 1, SHARE * sizeof(float));
    pipe.InitBuffer(out, 1, SHARE * sizeof(float));
    AscendC::GlobalTensor<float> from;
    AscendC::GlobalTensor<float> to;
    from.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(product) + first, SHARE);
    to.SetGlobalBuffer(reinterpret_cast<__gm__ float *>(c) + first, SHARE);

    AscendC::LocalTensor<float> values = in.AllocTensor<float>();
    AscendC::DataCopy(values, from, SHARE);
    in.EnQue(values);
    AscendC::LocalTensor<float> ready = in.DeQue<float>();
    AscendC::LocalTensor<float> result = out.AllocTensor<float>();
    AscendC::Relu(result, ready, SHARE);
    out.EnQue(result);
    in.FreeTensor(ready);
    AscendC::LocalTensor<float> done = out.DeQue<float>();
    AscendC::DataCopy(to, done, SHARE);
    out.FreeTensor(done);
}

extern "C" __global__ __aicore__ void matmul_relu(GM_ADDR a, GM_ADDR b, GM_ADDR product, GM_ADDR c)
{
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);
    if ASCEND_IS_AIC {
        Product().Run(a, b, product);
        AscendC::CrossCoreSetFlag<0x2, PIPE_FIX>(PRODUCT_READY);
    }
    if ASCEND_IS_AIV {
        AscendC::CrossCoreWaitFlag(PRODUCT_READY);
        Relu(product, c);
    }
}
