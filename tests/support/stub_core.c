/* The part of the stub libraries that is written by hand: the log of calls, and what the "working" stub does.
 *
 * stub.py compiles this file together with one generated function per row of the API table. Each generated function
 * writes its arguments into the log, fills the out parameters that a test asked for, and returns what a test asked for;
 * 0 unless told otherwise. With stub_set_working(1) the functions marked HOOK below do a small, plausible job instead.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARGUMENT_BYTES 256
#define TEXT_BYTES 256
#define RESULT_BYTES 64
#define MOST_RECORDS 20000

typedef struct {
    int32_t function;
    uint32_t used;
    uint64_t thread;
    unsigned char bytes[ARGUMENT_BYTES];
    char text[TEXT_BYTES];
} record;

typedef struct output {
    int32_t parameter;
    uint32_t size;
    unsigned char *bytes;
    struct output *next;
} output;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static record *records;
static uint64_t kept, total, room;
static int working;

/* generated */
extern const char *const stub_names[];
extern const int32_t stub_functions;
extern unsigned char stub_results[][RESULT_BYTES];
extern output *stub_outputs[];
extern unsigned char stub_told[];

/* -- the log ---------------------------------------------------------------------------------------------------- */

static record scratch;

static record *begin(int32_t function)
{
    pthread_mutex_lock(&lock);
    total++;
    if (kept == MOST_RECORDS) {
        memset(&scratch, 0, sizeof scratch);
        return &scratch;
    }
    if (kept == room) {
        room = room ? 2 * room : 64;
        records = realloc(records, room * sizeof *records);
    }
    record *r = &records[kept++];
    memset(r, 0, sizeof *r);
    r->function = function;
    r->thread = (uint64_t)pthread_self();
    return r;
}

static void put(record *r, const void *argument, uint32_t size)
{
    if (r->used + size <= ARGUMENT_BYTES) {
        memcpy(r->bytes + r->used, argument, size);
    }
    r->used += size;
}

static void end(int32_t function, void *const *arguments)
{
    for (output *o = stub_outputs[function]; o; o = o->next) {
        if (arguments[o->parameter]) {
            memcpy(arguments[o->parameter], o->bytes, o->size);
        }
    }
    pthread_mutex_unlock(&lock);
}

const record *stub_records(uint64_t *count, uint64_t *all)
{
    *count = kept;
    *all = total;
    return records;
}

uint32_t stub_record_bytes(void) { return sizeof(record); }

int32_t stub_find(const char *name)
{
    for (int32_t i = 0; i < stub_functions; i++) {
        if (strcmp(stub_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *stub_name(int32_t function) { return stub_names[function]; }

void stub_set_result(int32_t function, const void *bytes, uint32_t size)
{
    memset(stub_results[function], 0, RESULT_BYTES);
    memcpy(stub_results[function], bytes, size);
    stub_told[function] = 1;
}

/* Forget what a test asked of one function. */
void stub_restore(int32_t function)
{
    stub_told[function] = 0;
    memset(stub_results[function], 0, RESULT_BYTES);
    while (stub_outputs[function]) {
        output *next = stub_outputs[function]->next;
        free(stub_outputs[function]->bytes);
        free(stub_outputs[function]);
        stub_outputs[function] = next;
    }
}

void stub_set_output(int32_t function, int32_t parameter, const void *bytes, uint32_t size)
{
    output *o = calloc(1, sizeof *o);
    o->parameter = parameter;
    o->size = size;
    o->bytes = malloc(size);
    memcpy(o->bytes, bytes, size);
    o->next = stub_outputs[function];
    stub_outputs[function] = o;
}

/* -- the working stub: handles ---------------------------------------------------------------------------------- */

typedef struct {
    void *address;
    int32_t function;
} handle;

static handle *handles;
static uint64_t live, handle_room;

static void remember(void *address, int32_t function)
{
    pthread_mutex_lock(&lock);
    if (live == handle_room) {
        handle_room = handle_room ? 2 * handle_room : 64;
        handles = realloc(handles, handle_room * sizeof *handles);
    }
    handles[live].address = address;
    handles[live++].function = function;
    pthread_mutex_unlock(&lock);
}

static int forget(void *address)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (uint64_t i = 0; i < live && !found; i++) {
        if (handles[i].address == address) {
            handles[i] = handles[--live];
            found = 1;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* What a create function of the working stub gives out: a block of its own, so that handles differ and are not NULL. */
static int32_t give(void *out, int32_t function)
{
    if (!out) {
        return 100000;
    }
    void *address = calloc(1, 256);
    *(void **)out = address;
    remember(address, function);
    return 0;
}

/* Destroying something twice is an error here; the real library would crash. */
static int32_t take(void *address)
{
    if (!address) {
        return 100000;
    }
    if (!forget(address)) {
        return 107000;
    }
    free(address);
    return 0;
}

uint64_t stub_live(void) { return live; }
const char *stub_live_maker(uint64_t i) { return stub_names[handles[i].function]; }
int32_t stub_working(void) { return working; }

/* -- the working stub: functions with a job ----------------------------------------------------------------------- */

#define DEVICES 2
#define HOOK(name) hook_##name

static int initialized, finalized;
static uint64_t sets[DEVICES];
static __thread int32_t current = -1;

static int32_t HOOK(aclInit)(void *path)
{
    (void)path;
    finalized = 0;
    return initialized++ ? 100002 : 0;
}

static int32_t HOOK(aclFinalize)(void)
{
    int32_t code = finalized ? 100037 : 0;
    finalized = 1;
    initialized = 0;
    return code;
}

static int32_t HOOK(aclFinalizeReference)(void *count)
{
    if (initialized == 0) {
        return 100037;
    }
    initialized--;
    if (count) {
        *(uint64_t *)count = (uint64_t)initialized;
    }
    return 0;
}

static int32_t HOOK(aclrtGetVersion)(void *major, void *minor, void *patch)
{
    *(int32_t *)major = 1;
    *(int32_t *)minor = 17;
    *(int32_t *)patch = 0;
    return 0;
}

static const char *HOOK(aclrtGetSocName)(void) { return "Ascend910B1"; }

static int32_t HOOK(aclrtGetRunMode)(void *mode)
{
    *(int32_t *)mode = 1;
    return 0;
}

static int32_t HOOK(aclrtGetDeviceCount)(void *count)
{
    *(uint32_t *)count = DEVICES;
    return 0;
}

static int32_t HOOK(aclrtSetDevice)(int32_t device)
{
    if (device < 0 || device >= DEVICES) {
        return 107001;
    }
    sets[device]++;
    current = device;
    return 0;
}

static int32_t HOOK(aclrtGetDevice)(void *device)
{
    if (current < 0) {
        return 107002;
    }
    *(int32_t *)device = current;
    return 0;
}

static int32_t HOOK(aclrtResetDevice)(int32_t device)
{
    if (device < 0 || device >= DEVICES) {
        return 107001;
    }
    if (sets[device] == 0) {
        return 507007;
    }
    if (--sets[device] == 0 && current == device) {
        current = -1;
    }
    return 0;
}

static int32_t HOOK(aclrtResetDeviceForce)(int32_t device)
{
    if (device < 0 || device >= DEVICES || sets[device] == 0) {
        return 507007;
    }
    sets[device] = 1;
    return HOOK(aclrtResetDevice)(device);
}

/* One context per device, shared by all threads: the address of its counter. */
static int32_t HOOK(aclrtGetCurrentContext)(void *context)
{
    if (current < 0) {
        return 107002;
    }
    *(void **)context = &sets[current];
    return 0;
}

static int32_t HOOK(aclrtSetCurrentContext)(void *context)
{
    for (int32_t device = 0; device < DEVICES; device++) {
        if (context == &sets[device]) {
            current = device;
        }
    }
    if (context && current < 0) {
        current = 0; /* a created context: all of them are on the first device */
    }
    return context ? 0 : 100000;
}

static int32_t allocate(void *out, uint64_t size, int32_t function)
{
    if (!out || !size) {
        return 100000;
    }
    if (current < 0) {
        return 107002;
    }
    if (size > UINT64_C(64) << 30) {
        return 207001;
    }
    void *address = NULL;
    if (posix_memalign(&address, 64, size)) {
        return 207001;
    }
    *(void **)out = address;
    remember(address, function);
    return 0;
}

static int32_t HOOK(aclrtMalloc)(void *out, uint64_t size, uint32_t policy)
{
    (void)policy;
    return allocate(out, size, stub_find("aclrtMalloc"));
}

static int32_t HOOK(aclrtMallocHost)(void *out, uint64_t size) { return allocate(out, size, stub_find("aclrtMallocHost")); }
static int32_t HOOK(aclrtFree)(void *address) { return take(address); }
static int32_t HOOK(aclrtFreeHost)(void *address) { return take(address); }

static int32_t HOOK(aclrtGetMemInfo)(uint32_t kind, void *available, void *all)
{
    (void)kind;
    if (current < 0) {
        return 107002;
    }
    *(uint64_t *)available = UINT64_C(60) << 30;
    *(uint64_t *)all = UINT64_C(64) << 30;
    return 0;
}

static int32_t HOOK(aclrtMemcpy)(void *to, uint64_t most, const void *from, uint64_t count, uint32_t kind)
{
    (void)kind;
    if (!to || !from) {
        return 100000;
    }
    if (count == 0 || count > most) {
        return 107000;
    }
    memmove(to, from, count);
    return 0;
}

static int32_t HOOK(aclrtMemcpyAsync)(void *to, uint64_t most, const void *from, uint64_t count, uint32_t kind, void *stream)
{
    (void)stream;
    return kind == 0 ? 207000 : HOOK(aclrtMemcpy)(to, most, from, count, kind);
}

static int32_t HOOK(aclrtMemcpy2d)(void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch, uint64_t width,
                                   uint64_t height, uint32_t kind)
{
    (void)kind;
    if (!to || !from || !width || width > to_pitch || width > from_pitch) {
        return 100000;
    }
    for (uint64_t row = 0; row < height; row++) {
        memmove((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width);
    }
    return 0;
}

static int32_t HOOK(aclrtMemcpy2dAsync)(void *to, uint64_t to_pitch, const void *from, uint64_t from_pitch,
                                        uint64_t width, uint64_t height, uint32_t kind, void *stream)
{
    (void)stream;
    return HOOK(aclrtMemcpy2d)(to, to_pitch, from, from_pitch, width, height, kind);
}

static int32_t HOOK(aclrtMemset)(void *to, uint64_t most, int32_t value, uint64_t count)
{
    if (!to) {
        return 100000;
    }
    if (count == 0 || count > most) {
        return 107000;
    }
    memset(to, value, count);
    return 0;
}

static int32_t HOOK(aclrtMemsetAsync)(void *to, uint64_t most, int32_t value, uint64_t count, void *stream)
{
    (void)stream;
    return HOOK(aclrtMemset)(to, most, value, count);
}

static int32_t complete(void *status)
{
    if (!status) {
        return 100000;
    }
    *(int32_t *)status = 1;
    return 0;
}

static int32_t HOOK(aclrtQueryEventStatus)(void *event, void *status) { return event ? complete(status) : 100000; }
static int32_t HOOK(aclrtQueryEventWaitStatus)(void *event, void *status) { return event ? complete(status) : 100000; }

static int32_t HOOK(aclrtStreamQuery)(void *stream, void *status)
{
    (void)stream;
    if (!status) {
        return 100000;
    }
    *(int32_t *)status = 0;
    return 0;
}

static int32_t HOOK(aclrtEventElapsedTime)(void *milliseconds, void *start, void *later)
{
    if (!milliseconds || !start || !later) {
        return 100000;
    }
    *(float *)milliseconds = 1.5f;
    return 0;
}

static int32_t HOOK(aclrtStreamGetId)(void *stream, void *id)
{
    *(int32_t *)id = (int32_t)((uintptr_t)stream >> 4 & 0x7ff);
    return 0;
}

static int32_t HOOK(aclrtKernelArgsGetHandleMemSize)(void *function, void *size)
{
    (void)function;
    *(uint64_t *)size = 4096;
    return 0;
}

static int32_t HOOK(aclrtKernelArgsGetMemSize)(void *function, uint64_t user, void *size)
{
    (void)function;
    *(uint64_t *)size = (user + 63) / 64 * 64;
    return 0;
}

/* A function handle is made once for each name and lives as long as its binary: it is nothing to free. */
static int32_t HOOK(aclrtBinaryGetFunction)(void *binary, const char *name, void *function)
{
    if (!binary || !name || !function) {
        return 100000;
    }
    static char functions[64][64];
    static int used;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < used && strncmp(functions[i], name, 63)) {
        i++;
    }
    if (i == used && used < 63) {
        strncpy(functions[used++], name, 63);
    }
    pthread_mutex_unlock(&lock);
    *(void **)function = functions[i];
    return 0;
}

/* What an argument handle points to: the block so far. Every append starts at a multiple of 8, as in the real library. */
typedef struct {
    char *memory;
    uint64_t room, used;
} argument_list;

static int32_t begin_arguments(argument_list *list, void *memory, uint64_t room)
{
    list->memory = memory;
    list->room = room;
    list->used = 0;
    return 0;
}

static void *more_arguments(argument_list *list, uint64_t size)
{
    uint64_t at = (list->used + 7) / 8 * 8;
    if (at + size > list->room) {
        return NULL;
    }
    list->used = at + size;
    return list->memory + at;
}

static int32_t HOOK(aclrtKernelArgsInit)(void *function, void *arguments)
{
    static __thread argument_list list;
    static __thread char memory[65536];
    if (!function || !arguments) {
        return 100000;
    }
    *(void **)arguments = &list;
    return begin_arguments(&list, memory, sizeof memory);
}

static int32_t HOOK(aclrtKernelArgsInitByUserMem)(void *function, void *arguments, void *memory, uint64_t size)
{
    return function && arguments && memory ? begin_arguments(arguments, memory, size) : 100000;
}

static int32_t parameter_handle(void *handle)
{
    static uint64_t next = 1;
    if (handle) {
        *(uint64_t *)handle = next++;
    }
    return 0;
}

static int32_t HOOK(aclrtKernelArgsAppend)(void *arguments, void *value, uint64_t size, void *handle)
{
    if (!arguments || !value || !size) {
        return 100000;
    }
    void *place = more_arguments(arguments, size);
    if (!place) {
        return 107000;
    }
    memcpy(place, value, size);
    return parameter_handle(handle);
}

static int32_t HOOK(aclrtKernelArgsAppendPlaceHolder)(void *arguments, void *handle)
{
    if (!arguments) {
        return 100000;
    }
    return more_arguments(arguments, 8) ? parameter_handle(handle) : 107000;
}

static int32_t HOOK(aclrtKernelArgsGetPlaceHolderBuffer)(void *arguments, void *handle, uint64_t size, void *out)
{
    if (!arguments || !handle || !size || !out) {
        return 100000;
    }
    void *place = more_arguments(arguments, size);
    *(void **)out = place;
    return place ? 0 : 107000;
}

static int32_t HOOK(aclsysGetVersionStr)(const char *package, char *version)
{
    const char *told = getenv("PYACL_STUB_VERSION");
    if (!package || !version) {
        return 100000;
    }
    if (!told) {
        return 100003;
    }
    snprintf(version, 128, "%s", told);
    return 0;
}

static int32_t HOOK(aclsysGetCANNVersion)(uint32_t package, char *version)
{
    (void)package;
    return HOOK(aclsysGetVersionStr)("runtime", version);
}

/* The text of the last failure, which a test sets with stub_set_message; reading clears it. */
static __thread char message[4096];
static __thread char handed_out[4096];

void stub_set_message(const char *text) { snprintf(message, sizeof message, "%s", text); }

static const char *HOOK(aclGetRecentErrMsg)(void)
{
    if (!message[0]) {
        return NULL;
    }
    memcpy(handed_out, message, sizeof handed_out);
    message[0] = 0;
    return handed_out;
}

void stub_reset(void)
{
    pthread_mutex_lock(&lock);
    kept = total = 0;
    for (int32_t i = 0; i < stub_functions; i++) {
        stub_restore(i);
    }
    live = 0;
    working = initialized = finalized = 0;
    memset(sets, 0, sizeof sets);
    current = -1;
    message[0] = 0;
    pthread_mutex_unlock(&lock);
}

void stub_set_working(int on) { working = on; }

/* For processes of their own, where nobody is there to call stub_set_working before the first call. */
__attribute__((constructor)) static void from_environment(void) { working = getenv("PYACL_STUB_WORKING") != NULL; }
