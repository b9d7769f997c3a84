"""Rules of the real library, measured call by call: which check comes first, and what a refusal leaves behind."""

from __future__ import annotations

import ctypes
import json
import re
import threading

import pytest
from simulated import Calls, undefined

from pyacl.raw import types as c
from pyacl.testing import KernelSpec, make_kernel_object

INVALID_PARAM, PARAM_INVALID, NOT_SUPPORTED = 100000, 107000, 207000
NO_DEVICE, NO_CONTEXT, OTHER_CONTEXT, OTHER_MODEL_CONTEXT = 107001, 107002, 107003, 107004
SUBSCRIBED, SUBSCRIBED_ELSEWHERE, INTERNAL, NOT_OPEN = 107011, 107012, 507000, 507033
PERSISTENT, CPU_SCHEDULE = 4, 16
NOT_READY, COMPLETE = 1, 0


@pytest.fixture
def calls():
    return Calls()


def stream_with(calls, flags):
    stream = c.aclrtStream()
    calls.aclrtCreateStreamWithConfig(stream, 0, flags)
    return stream


def calls_with_kernel(calls):
    """A function of a kernel object."""
    data, binary, function = make_kernel_object("k"), c.aclrtBinHandle(), c.aclrtFuncHandle()
    calls.aclrtBinaryLoadFromData(data, len(data), None, binary)
    calls.aclrtBinaryGetFunction(binary, b"k", function)
    return function


def last_error(calls):
    return calls.api.unchecked.aclrtGetLastError(0)


def refusal(calls, name, *arguments):
    """The error code of a call, and the codes in the message that it leaves."""
    code = getattr(calls.api.unchecked, name)(*arguments)
    text = (calls.aclGetRecentErrMsg() or b"").decode()
    return code, *sorted(set(re.findall(r"\b[A-Z]{2}\d{4}\b", text)))


# ---- devices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aclrtGetDeviceResLimit", (1, ctypes.c_uint32())),
        ("aclrtSetDeviceResLimit", (1, 4)),
        ("aclrtResetDeviceResLimit", ()),
    ],
)
def test_limits_of_a_device_that_is_not_open(calls, name, arguments):
    assert calls.code(name, 1, *arguments) == NOT_OPEN
    assert last_error(calls) == NOT_OPEN


@pytest.mark.parametrize(("device", "kind", "expected"), [(-1, 7, NO_DEVICE), (2, 7, PARAM_INVALID), (2, 0, NO_DEVICE)])
def test_limits_look_at_the_sign_then_at_the_kind_then_at_the_device(calls, device, kind, expected):
    assert calls.code("aclrtGetDeviceResLimit", device, kind, ctypes.c_uint32()) == expected
    assert calls.code("aclrtSetDeviceResLimit", device, kind, 1) == expected


def test_memory_usage_of_a_device_that_does_not_exist(calls):
    usage, number = c.aclrtMemUsageInfo(), ctypes.c_size_t()
    assert refusal(calls, "aclrtGetMemUsageInfo", 2, usage, 1, number) == (NO_DEVICE, "EE1003")


def test_kinds_of_memory_that_only_the_runtime_knows(calls):
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    for kind in range(18):
        assert calls.code("aclrtGetMemInfo", kind, free, total) == 0
    assert calls.code("aclrtGetMemInfo", 18, free, total) == 107016


def test_reserved_memory_has_another_number_than_the_header_says(calls):
    addresses, found = (ctypes.c_void_p * 1)(calls.malloc(64)), ctypes.c_uint32()
    codes = [calls.code("aclrtCheckMemType", addresses, 1, kind, found, 0) for kind in (2, 8, 0x10, 0x20, 0x2A, 0x40)]
    assert codes == [0, 0, PARAM_INVALID, 0, 0, PARAM_INVALID]


def test_how_tasks_of_ai_cpus_are_scheduled(calls):
    value = ctypes.c_int32()
    assert calls.number("aclrtGetDeviceCapability", 0, 10001, kind=ctypes.c_int32) == 2  # by hardware
    assert calls.code("aclrtGetDeviceCapability", 1, 10001, value) == NOT_OPEN
    assert Calls(soc="Ascend910A").number("aclrtGetDeviceCapability", 0, 10001, kind=ctypes.c_int32) == 1


# ---- streams -------------------------------------------------------------------------------------------------


@pytest.fixture
def told():
    """What a callback on streams was told: the stream's number in the order of their appearance, and its state."""
    streams, seen = [], []

    @c.aclrtStreamStateCallback
    def callback(stream, state, _):
        if stream not in streams:
            streams.append(stream)
        seen.append((streams.index(stream), state))

    return {"callback": callback, "streams": streams, "seen": seen}


CREATED, DESTROYING = 1, 2


def test_streams_that_the_library_makes_for_itself_are_told_of(told):
    calls = Calls()
    calls.aclrtResetDevice(0)
    calls.aclrtRegStreamStateCallback(b"test", told["callback"], None)
    calls.aclrtSetDevice(0)
    default = calls.number("aclrtCtxGetCurrentDefaultStream", kind=c.aclrtStream)
    assert told["seen"] == [(0, CREATED), (1, CREATED)]  # the default stream, and one for random numbers
    assert told["streams"][0] == default
    context, stream = c.aclrtContext(), c.aclrtStream()
    calls.aclrtCreateContext(context, 0)
    calls.aclrtCreateStream(stream)
    assert told["seen"][2:] == [(2, CREATED), (3, CREATED)]
    calls.aclrtDestroyContext(context)
    assert told["seen"][4:] == [(2, DESTROYING), (3, DESTROYING), (2, DESTROYING)]  # the default stream twice
    calls.aclrtSetDevice(0)
    calls.aclrtResetDeviceForce(0)
    assert told["seen"][7:] == [(0, DESTROYING)]


def test_captures_have_streams_of_their_own(calls, told):
    stream, scheduler, model = calls.stream(), stream_with(calls, CPU_SCHEDULE), c.aclmdlRI()
    calls.aclrtRegStreamStateCallback(b"test", told["callback"], None)
    calls.aclmdlRICaptureBegin(stream, 0)
    calls.aclmdlRICaptureEnd(stream, model)
    calls.aclmdlRIDestroy(model)
    calls.aclrtDestroyStream(stream)
    assert told["seen"] == [(0, CREATED), (0, DESTROYING), (1, DESTROYING)]
    calls.aclrtDestroyStream(scheduler)  # has no queue: nobody is told
    assert len(told["seen"]) == 3


def test_stream_for_the_cpu_scheduler_runs_nothing(calls):
    stream, other, event = stream_with(calls, CPU_SCHEDULE), calls.stream(), c.aclrtEvent()
    status = ctypes.c_uint32(7)
    calls.aclrtStreamQuery(stream, status)
    assert status.value == NOT_READY  # although nothing was ever submitted
    assert calls.code("aclrtSynchronizeStream", stream) == INTERNAL
    calls.aclrtCreateEvent(event)
    calls.aclrtRecordEvent(event, stream)
    assert calls.code("aclrtStreamWaitEvent", other, event) == PARAM_INVALID  # as if it had not been recorded
    calls.aclrtRecordEvent(event, other)
    calls.aclrtStreamWaitEvent(stream, event)


def test_asking_whether_a_stream_for_the_cpu_scheduler_is_complete(calls):
    stream, status = stream_with(calls, CPU_SCHEDULE), ctypes.c_uint32(7)
    assert refusal(calls, "aclrtStreamQuery", stream, status) == (0, "EL9999")  # the driver's
    assert (status.value, last_error(calls)) == (NOT_READY, 0)


def test_streams_of_models_take_no_task_on_caches(calls):
    stream, model, memory = stream_with(calls, PERSISTENT), c.aclmdlRI(), calls.malloc(64)
    calls.aclrtCmoAsync(memory, 64, 0, stream)
    calls.aclmdlRIBuildBegin(model, 0)
    calls.aclmdlRIBindStream(model, stream, 0)
    assert refusal(calls, "aclrtCmoAsync", memory, 64, 0, stream) == (NOT_SUPPORTED,)
    assert last_error(calls) == 0


@pytest.mark.parametrize("flags", [1, 2, 4, 8, 0x40, 0x80])
def test_streams_that_can_be_captured(calls, flags):
    stream, model = stream_with(calls, flags), c.aclmdlRI()
    calls.aclmdlRICaptureBegin(stream, 0)
    calls.aclmdlRICaptureEnd(stream, model)
    assert model.value


def test_stream_that_cannot_be_captured(calls):
    stream, model = stream_with(calls, CPU_SCHEDULE), c.aclmdlRI(77)
    assert calls.code("aclmdlRICaptureBegin", stream, 0) == INTERNAL
    assert calls.code("aclmdlRICaptureEnd", stream, model) == INTERNAL
    assert model.value == 77


def test_activating_streams_without_a_context(calls):
    codes = []

    def work():
        codes.append(calls.code("aclrtActiveStream", c.aclrtStream(0x5555_0000), c.aclrtStream(0x5555_0000)))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert codes == [NO_CONTEXT]  # the streams are not looked at


# ---- memory that holds no object -----------------------------------------------------------------------------


@pytest.fixture
def zeros():
    return ctypes.create_string_buffer(65536)


def test_zeroed_memory_as_a_stream(calls, zeros):
    stream, address, event = c.aclrtStream(ctypes.addressof(zeros)), calls.malloc(64), c.aclrtEvent()
    calls.aclrtCreateEvent(event)
    assert calls.code("aclrtMemsetAsync", address, 64, 0, 64, stream) == OTHER_CONTEXT
    assert calls.code("aclrtLaunchHostFunc", stream, c.aclrtHostFunc(lambda _: None), None) == OTHER_CONTEXT
    assert calls.code("aclrtDestroyStream", stream) == OTHER_CONTEXT


def test_zeroed_memory_as_a_model_and_as_a_label(calls, zeros):
    model, label = c.aclmdlRI(ctypes.addressof(zeros)), c.aclrtLabel(ctypes.addressof(zeros))
    assert calls.code("aclmdlRIExecute", model, 10) == OTHER_MODEL_CONTEXT
    assert calls.code("aclmdlRIDestroy", model) == OTHER_MODEL_CONTEXT
    assert calls.code("aclmdlRISetName", model, b"m") == OTHER_MODEL_CONTEXT
    assert calls.code("aclrtDestroyLabel", label) == 507031


def test_zeroed_memory_as_an_argument_handle(calls, zeros):
    handle, value, parameter = c.aclrtArgsHandle(ctypes.addressof(zeros)), ctypes.c_uint64(1), c.aclrtParamHandle()
    appended = refusal(calls, "aclrtKernelArgsAppend", handle, ctypes.addressof(value), 8, parameter)
    assert appended == (PARAM_INVALID, "EE1001")  # it has room for no parameter
    assert refusal(calls, "aclrtKernelArgsFinalize", handle) == (PARAM_INVALID, "EE1004")  # it has no function


@pytest.mark.parametrize("address", [8, 0x1234])
def test_addresses_that_are_no_memory(calls, address):
    with undefined("is not a stream"):
        calls.aclrtMemsetAsync(calls.malloc(64), 64, 0, 64, c.aclrtStream(address))
    with undefined("is not an argument handle"):
        calls.aclrtKernelArgsFinalize(c.aclrtArgsHandle(address))


def test_handle_of_another_kind(calls):
    model = c.aclmdlRI()
    calls.aclmdlRIBuildBegin(model, 0)
    with undefined("is not a stream"):
        calls.aclrtMemsetAsync(calls.malloc(64), 64, 0, 64, c.aclrtStream(model.value))


# ---- callbacks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("default", [False, True], ids=["own stream", "default stream"])
def test_a_stream_with_host_functions_has_no_room_for_subscriptions(calls, default):
    stream, ran = None if default else calls.stream(), threading.Event()
    function = c.aclrtHostFunc(lambda _: ran.set())
    calls.aclrtLaunchHostFunc(stream, function, None)
    calls.aclrtSynchronizeStream(stream)
    assert ran.is_set()
    me = threading.get_ident()
    assert calls.code("aclrtSubscribeReport", me, stream) == SUBSCRIBED
    assert calls.code("aclrtUnSubscribeReport", me, stream) == (SUBSCRIBED_ELSEWHERE if default else SUBSCRIBED)


def test_callback_on_a_default_stream_with_host_functions(calls):
    ran = []
    host, callback = c.aclrtHostFunc(lambda _: ran.append("host")), c.aclrtCallback(lambda _: ran.append("callback"))
    calls.aclrtLaunchHostFunc(None, host, None)
    calls.aclrtLaunchCallback(callback, None, 1, None)  # the library's thread runs it too
    calls.aclrtSynchronizeStream(None)
    assert ran == ["host", "callback"]


def test_a_thread_is_subscribed_on_one_device(calls):
    here = calls.stream()
    calls.aclrtSetDevice(1)
    there = calls.stream()
    calls.aclrtSubscribeReport(5, here)
    assert calls.code("aclrtSubscribeReport", 5, there) == SUBSCRIBED_ELSEWHERE
    calls.aclrtSubscribeReport(6, there)
    calls.aclrtUnSubscribeReport(5, here)
    calls.aclrtUnSubscribeReport(6, there)


def test_subscribing_needs_a_context(calls):
    stream, codes = calls.stream(), []
    worker = threading.Thread(target=lambda: codes.append(calls.code("aclrtSubscribeReport", 5, stream)))
    worker.start()
    worker.join()
    assert codes == [NO_CONTEXT]


# ---- models --------------------------------------------------------------------------------------------------


def test_default_stream_of_a_thread_without_context_in_a_model(calls):
    model, codes = c.aclmdlRI(), []
    calls.aclmdlRIBuildBegin(model, 0)

    def work():
        codes.append(calls.code("aclmdlRIEndTask", model, None))
        codes.append(calls.code("aclmdlRIUnbindStream", model, None))
        codes.append(calls.code("aclrtResetOverflowStatus", None))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert codes == [PARAM_INVALID] * 3  # a null pointer, before the missing context is seen


def test_switch_of_labels_wants_a_stream(calls):
    address = calls.malloc(64)
    arguments = address, 1, c.aclrtLabelList(address)
    assert refusal(calls, "aclrtSwitchLabelByIndex", *arguments, None) == (INVALID_PARAM, "EH0002")
    assert last_error(calls) == 0
    assert refusal(calls, "aclrtSwitchLabelByIndex", *arguments, calls.stream()) == (107005, "EE1011")


def test_room_for_a_name(calls):
    model, room = c.aclmdlRI(), ctypes.create_string_buffer(16)
    calls.aclmdlRIBuildBegin(model, 0)
    calls.aclmdlRISetName(model, b"abc")
    assert calls.code("aclmdlRIGetName", model, 0x7FFF_FFFF, room) == 0
    assert room.value == b"abc"
    assert calls.code("aclmdlRIGetName", model, 0x8000_0000, room) == INTERNAL  # no length that C can copy


def test_the_end_of_a_model_on_chips_that_mark_it_with_a_task():
    calls = Calls(soc="Ascend310P3")
    model, stream = c.aclmdlRI(), stream_with(calls, PERSISTENT)
    calls.aclmdlRIBuildBegin(model, 0)
    calls.aclmdlRIBindStream(model, stream, 0)
    calls.aclmdlRIEndTask(model, stream)
    assert calls.code("aclmdlRIEndTask", model, stream) == INTERNAL  # once
    assert calls.code("aclmdlRIExecute", model, 1000) == 507011  # not before it is loaded
    calls.aclmdlRIBuildEnd(model, None)
    calls.aclmdlRIExecute(model, 1000)


# ---- copies and allocations ----------------------------------------------------------------------------------


def test_kind_default_is_not_resolved_for_two_dimensions_on_a_stream(calls):
    device, host, stream = calls.malloc(64), ctypes.create_string_buffer(64), calls.stream()
    assert calls.code("aclrtMemcpy2dAsync", device, 16, ctypes.addressof(host), 16, 8, 4, 4, stream) == PARAM_INVALID
    calls.aclrtMemcpy2d(device, 16, ctypes.addressof(host), 16, 8, 4, 4)


def test_attributes_behind_the_end_of_a_list(calls):
    attribute = (c.aclrtMallocAttribute * 2)()
    attribute[1].attr = 77
    config = c.aclrtMallocConfig(attrs=ctypes.addressof(attribute), numAttrs=2**31)
    made = ctypes.c_void_p()
    assert refusal(calls, "aclrtMallocWithCfg", made, 64, 0, config) == (PARAM_INVALID, "EE9999")


NO_LENGTH = 0x8000_0000  # the safe copy functions of C take one byte less


def test_lengths_that_c_cannot_copy(calls):
    host, stream = ctypes.create_string_buffer(64), calls.stream()
    address = ctypes.addressof(host)
    assert calls.code("aclrtMemsetAsync", address, NO_LENGTH - 1, 1, 64, stream) == 0
    assert calls.code("aclrtMemsetAsync", address, NO_LENGTH, 1, 64, stream) == INTERNAL
    assert calls.code("aclrtMemsetAsync", calls.malloc(64), NO_LENGTH, 1, 64, stream) == 0  # of device memory
    attribute, depth, size = calls.acltdtCreateQueueAttr(), ctypes.c_uint32(), ctypes.c_size_t(77)
    assert calls.code("acltdtGetQueueAttr", attribute, 1, NO_LENGTH, size, ctypes.addressof(depth)) == 500001
    assert size.value == 77
    assert calls.code("acltdtGetQueueAttr", attribute, 1, NO_LENGTH - 1, size, ctypes.addressof(depth)) == 0
    assert (size.value, depth.value) == (4, 8)


def test_sizes_of_parameters_whose_sum_wraps_around(calls):
    function = calls_with_kernel(calls)
    handle, first, second, data = c.aclrtArgsHandle(), c.aclrtParamHandle(), c.aclrtParamHandle(), ctypes.c_void_p()
    calls.aclrtKernelArgsInit(function, handle)
    assert refusal(calls, "aclrtKernelArgsAppend", handle, bytes(8), 2**64 - 1, second) == (PARAM_INVALID, "EE1001")
    assert second.value is None
    calls.aclrtKernelArgsAppend(handle, bytes(8), 8, first)
    assert refusal(calls, "aclrtKernelArgsAppend", handle, bytes(8), 2**64 - 1, second) == (PARAM_INVALID, "EE1001")
    assert second.value == first.value + 32  # given before the copy is refused
    calls.aclrtKernelArgsAppendPlaceHolder(handle, first)
    assert first.value == second.value  # it was not counted
    calls.aclrtKernelArgsGetPlaceHolderBuffer(handle, first, 2**64 - 1, data)
    assert data.value


def test_values_are_in_device_memory(calls):
    block = ctypes.create_string_buffer(64)
    for name in ("aclrtValueWrite", "aclrtValueWait"):
        assert refusal(calls, name, block, 1, 0, None) == (PARAM_INVALID, "EE1003")


def test_types_that_cannot_be_reduced_leave_no_message(calls):
    memory = calls.malloc(64)
    assert refusal(calls, "aclrtReduceAsync", memory, memory, 64, 10, -1, None, None) == (INVALID_PARAM,)


def test_a_batch_is_read_to_the_first_copy_that_does_not_fit(calls):
    device = calls.malloc(64)
    ends, sizes = (ctypes.c_void_p * 2)(device, device), (ctypes.c_size_t * 2)(64, 64)
    limits, attributes, at = (ctypes.c_size_t * 2)(64, 63), (c.aclrtMemcpyBatchAttr * 1)(), ctypes.c_size_t(0)
    failed = ctypes.c_size_t(77)
    for count in (2, 2**40, 2**64 - 1):
        code = calls.code("aclrtMemcpyBatch", ends, limits, ends, sizes, count, attributes, at, 1, failed)
        assert (code, failed.value) == (INVALID_PARAM, 77)


def test_addresses_that_were_never_written_do_not_lead_to_the_memory_of_the_program():
    calls = Calls()
    words = ctypes.cast(calls.malloc(16), ctypes.POINTER(ctypes.c_void_p))
    calls.aclrtMemcpyAsyncWithOffset(words, 8, 0, words, 8, 16, 6, None)
    with undefined("aclrtMemcpyAsyncWithOffset", "there is no memory at"):
        calls.aclrtSynchronizeDevice()


# ---- without a context ---------------------------------------------------------------------------------------


def in_a_thread(work):
    """What a function returns on a thread that has no context."""
    found = []
    worker = threading.Thread(target=lambda: found.append(work()))
    worker.start()
    worker.join()
    return found[0]


def message_without_context(calls, name, *arguments):
    """The code of a call without context, and the codes in the message read once the thread has a device."""

    def work():
        code = getattr(calls.api.unchecked, name)(*arguments)
        calls.aclrtSetDevice(0)
        return code, *re.findall(r"\b[A-Z]{2}\d{4}\b", (calls.aclGetRecentErrMsg() or b"").decode())[:1]

    return in_a_thread(work)


@pytest.mark.parametrize("name", ["aclrtMalloc", "aclrtMallocAlign32", "aclrtMallocCached", "aclrtMemAllocManaged"])
def test_allocations_report_the_lack_of_a_context_once(calls, name):
    assert message_without_context(calls, name, ctypes.c_void_p(), 64, 1) == (NO_CONTEXT, "EE9999")
    assert message_without_context(calls, "aclrtMallocHost", ctypes.c_void_p(), 64) == (NO_CONTEXT, "EE1001")


def test_queues_without_a_context_leave_no_last_error(calls):
    attributes, number = calls.api.acltdtCreateQueueAttr(), ctypes.c_uint32(7)

    def work():
        silent = calls.api.unchecked
        return silent.acltdtCreateQueue(attributes, number), silent.acltdtDestroyQueue(0), last_error(calls)

    assert in_a_thread(work) == (NO_CONTEXT, NO_CONTEXT, 0)
    assert number.value == 7


def test_one_capability_is_asked_of_the_context(calls):
    value = ctypes.c_int32()

    def work():
        return [calls.code("aclrtGetDeviceCapability", 0, feature, value) for feature in (1, 21)]

    assert in_a_thread(work) == [NO_CONTEXT, 0]


# ---- configuration -------------------------------------------------------------------------------------------


def test_configuration_with_a_byte_order_mark(tmp_path):
    calls = Calls()
    path = tmp_path / "acl.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"defaultDevice": {"default_device": "1"}}).encode())
    calls.aclInit(str(path).encode())
    found = ctypes.c_int32()
    codes = []

    def work():
        codes.append(calls.code("aclrtGetDevice", found))

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert (codes, found.value) == ([0], 1)


@pytest.mark.parametrize(
    ("name", "arguments", "code", "opens"),
    [
        ("aclGetRecentErrMsg", (), None, True),
        ("aclrtFreeHost", (ctypes.c_void_p(64),), PARAM_INVALID, True),
        ("aclrtSetDeviceSatMode", (0,), 0, True),
        ("aclrtGetDeviceUtilizationRate", (1, c.aclrtUtilizationInfo()), 0, True),
        ("aclrtGetDeviceUtilizationRate", (0, c.aclrtUtilizationInfo()), 0, False),
        ("aclrtGetLogicDevIdByPhyDevId", (1, ctypes.c_int32()), 0, True),
        ("aclrtGetLogicDevIdByPhyDevId", (0, ctypes.c_int32()), NO_CONTEXT, False),
        ("aclrtGetDeviceCapability", (0, 1, ctypes.c_int32()), NO_CONTEXT, False),
        ("aclrtMemcpy2d", (64, 1, 128, 1, 1, 1, 1), NO_CONTEXT, False),
        ("aclrtMemcpyAsync", (64, 8, 128, 8, 1, None), NO_CONTEXT, False),
        ("aclrtMalloc", (c.c_void_p(), 64, 0), 0, True),
    ],
)
def test_what_opens_the_default_device(tmp_path, name, arguments, code, opens):
    """Functions that are told the id of a device open the default device only for its own id."""
    calls = Calls()
    path = tmp_path / "acl.json"
    path.write_text(json.dumps({"defaultDevice": {"default_device": "1"}}))
    calls.aclInit(str(path).encode())

    def work():
        found = getattr(calls.api.unchecked, name)(*arguments)
        return found, calls.code("aclrtGetCurrentContext", c.aclrtContext()) == 0

    assert in_a_thread(work) == (code, opens)


@pytest.mark.parametrize(("kind", "left"), [(0, ("EH9999",)), (65535, ())])
def test_the_message_of_a_failed_registered_function(kind, left):
    """Of the functions registered for `aclInit`, those of the kind "other" leave no message when they fail."""
    calls = Calls()
    calls.aclrtSetDevice(0)  # so that asking for messages does not fail itself
    failing = c.aclInitCallbackFunc(lambda config, length, data: 77)
    calls.aclInitCallbackRegister(kind, failing, None)
    assert refusal(calls, "aclInit", None) == (77, *left)


# ---- kernel objects ------------------------------------------------------------------------------------------

UNTYPED, TYPED = KernelSpec("untyped", ktype=False), KernelSpec("typed")


@pytest.mark.parametrize(
    ("kernels", "options", "with_magic", "says"),
    [
        ([TYPED, UNTYPED], {}, 0, "EE1004"),
        ([UNTYPED, TYPED], {}, PARAM_INVALID, "EE1004"),
        (["k"], {"ktype": 8}, PARAM_INVALID, "EE1004"),
        (["k"], {"ktype": 1}, 0, "EE1004"),
        (["k"], {"min_stack": 32769}, PARAM_INVALID, "EE1004"),
        (["k"], {"metadata": False}, 0, "EE1001"),
    ],
)
def test_objects_that_need_the_option_magic_or_do_not_load(calls, kernels, options, with_magic, says):
    data = make_kernel_object(kernels, **options)
    binary = c.aclrtBinHandle(77)
    # EE1004: the kernels are at fault, not the file around them
    assert refusal(calls, "aclrtBinaryLoadFromData", data, len(data), None, binary) == (PARAM_INVALID, says)
    assert (binary.value, last_error(calls)) == (None, PARAM_INVALID)
    option = c.aclrtBinaryLoadOption(type=2)
    option.value.magic = 0x41415246
    loading = c.aclrtBinaryLoadOptions(options=ctypes.addressof(option), numOpt=1)
    assert calls.code("aclrtBinaryLoadFromData", data, len(data), loading, binary) == with_magic
