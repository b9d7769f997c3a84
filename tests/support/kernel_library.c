/* A host library as bisheng would make one, with functions that write down what they were given.
 * Compiled by tests/api/test_kernel_library.py; DEVICE_BINARY is the file of a device binary to carry inside. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct call {
    char name[64];
    uint32_t blocks;
    uint64_t stream;
    uint32_t size;
    uint8_t block[256];
};
struct call last_call;
uint32_t next_code;

__asm__(".section .aicore_binary, \"a\"\n.incbin \"" DEVICE_BINARY "\"\n.previous\n");

#define NOTE(function, the_blocks, the_stream, args)            \
    do {                                                        \
        strcpy(last_call.name, function);                       \
        last_call.blocks = the_blocks;                          \
        last_call.stream = (uint64_t)(uintptr_t)(the_stream);   \
        last_call.size = sizeof(args);                          \
        memcpy(last_call.block, &(args), sizeof(args));         \
    } while (0)
#define ARG(type, name) __attribute__((aligned((_Alignof(type) + 3) >> 2 << 2))) type name

struct tiling {
    int32_t length;
    double scale;
    uint8_t flags[3];
};

/* generated entry points: a code, a structure through a pointer */
uint32_t aclrtlaunch_add_custom(uint32_t numBlocks, void *stream, void *x, void *y, void *z)
{
    struct { ARG(void *, x); ARG(void *, y); ARG(void *, z); } args = {x, y, z};
    NOTE("add_custom", numBlocks, stream, args);
    return next_code;
}

uint32_t aclrtlaunch_scale(uint32_t numBlocks, void *stream, void *x, int8_t a, uint16_t b, float c, bool d, int64_t e,
                           double f, uint32_t g)
{
    struct {
        ARG(void *, x); ARG(int8_t, a); ARG(uint16_t, b); ARG(float, c); ARG(bool, d); ARG(int64_t, e); ARG(double, f);
        ARG(uint32_t, g);
    } args;
    memset(&args, 0, sizeof(args));
    args.x = x, args.a = a, args.b = b, args.c = c, args.d = d, args.e = e, args.f = f, args.g = g;
    NOTE("scale", numBlocks, stream, args);
    return next_code;
}

uint32_t aclrtlaunch_tiled(uint32_t numBlocks, void *stream, void *x, struct tiling *t)
{
    struct { ARG(void *, x); ARG(struct tiling, t); } args;
    memset(&args, 0, sizeof(args));
    args.x = x;
    memcpy(&args.t, t, sizeof(*t));
    NOTE("tiled", numBlocks, stream, args);
    return next_code;
}

/* functions with <<<>>> inside, as C++ and as C */
void add_custom_do(uint32_t blockDim, void *stream, uint8_t *x, uint8_t *y, uint8_t *z) __asm__(
    "_Z13add_custom_dojPvPhS0_S0_");
void add_custom_do(uint32_t blockDim, void *stream, uint8_t *x, uint8_t *y, uint8_t *z)
{
    struct { ARG(void *, x); ARG(void *, y); ARG(void *, z); } args = {x, y, z};
    NOTE("add_custom_do", blockDim, stream, args);
}

void old_style(uint32_t blockDim, void *l2ctrl, void *stream, uint8_t *x, int32_t n) __asm__("_Z9old_stylejPvS_Phi");
void old_style(uint32_t blockDim, void *l2ctrl, void *stream, uint8_t *x, int32_t n)
{
    struct { ARG(void *, l2ctrl); ARG(void *, x); ARG(int32_t, n); } args;
    memset(&args, 0, sizeof(args));
    args.l2ctrl = l2ctrl, args.x = x, args.n = n;
    NOTE("old_style", blockDim, stream, args);
}

void overloaded_f(uint32_t n, void *s, uint8_t *x, float f) __asm__("_Z10overloadedjPvPhf");
void overloaded_f(uint32_t n, void *s, uint8_t *x, float f)
{
    struct { ARG(void *, x); ARG(float, f); } args;
    memset(&args, 0, sizeof(args));
    args.x = x, args.f = f;
    NOTE("overloaded float", n, s, args);
}

void overloaded_d(uint32_t n, void *s, uint8_t *x, double f) __asm__("_Z10overloadedjPvPhd");
void overloaded_d(uint32_t n, void *s, uint8_t *x, double f)
{
    struct { ARG(void *, x); ARG(double, f); } args = {x, f};
    NOTE("overloaded double", n, s, args);
}

void by_value(uint32_t blockDim, void *stream, void *x, struct tiling t)
{
    struct { ARG(void *, x); ARG(struct tiling, t); } args;
    memset(&args, 0, sizeof(args));
    args.x = x;
    args.t.length = t.length, args.t.scale = t.scale, memcpy(args.t.flags, t.flags, 3);
    NOTE("by_value", blockDim, stream, args);
}

struct small { float a; int32_t b; };
void by_small_value(uint32_t blockDim, void *stream, struct small t, float after)
{
    struct { ARG(struct small, t); ARG(float, after); } args = {t, after};
    NOTE("by_small_value", blockDim, stream, args);
}

uint32_t with_code(uint32_t blockDim, void *stream, void *x, const struct tiling *host)
{
    struct { ARG(void *, x); ARG(int32_t, length); } args;
    memset(&args, 0, sizeof(args));
    args.x = x, args.length = host->length;
    NOTE("with_code", blockDim, stream, args);
    return next_code;
}

void no_launcher(float f) __asm__("_Z11no_launcherf");
void no_launcher(float f) { (void)f; }

static void hidden(void) {}
void *keep_hidden(void) { return (void *)hidden; }
