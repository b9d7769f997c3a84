"""What a code means, which class it raises, and what is read out of the library's text."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyacl import errors
from pyacl._error_text import parse
from pyacl.errors import AclError, error_class, make_error

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(errors.__file__).with_name("error_codes.json")
CODES = {int(code): entry for code, entry in json.loads(DATA.read_text(encoding="utf-8")).items()}
CLASSES = [getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)]

STAMP = "[PID: 77] 2026-01-01-00:00:00.000.001"
SOLUTION = "        Solution: 1.Check the input parameter range of the function. 2.Check the function invocation.\n"

GETTER_NOISE = (
    f"{STAMP} Invalid_Argument(EE1001): The argument is invalid.Reason: rtGetDevMsg "
    "execution failed, the context is a null pointer.\n"
    f"{SOLUTION}"
    "        TraceBack (most recent call last):\n"
    "        ctx is NULL![FUNC:GetDevErrMsg][FILE:api_impl.cc][LINE:6105]\n"
)
VALUE_TEXT = (
    f"{STAMP} Invalid_Argument(EE1003): rtMemcpy failed because value 17 for parameter "
    "cnt is invalid. Expected value: (0, 16].\n"
    f"{SOLUTION}"
    "        TraceBack (most recent call last):\n"
    "        call rtMemcpy failed[FUNC:ReportCallError][FILE:log_inner.cpp][LINE:161]\n"
)
FAULT_TEXT = (
    "EZ9999: Inner Error!\n"
    f"EZ9999{STAMP} (EZ9999):  The error from device(chipId:3, dieId:0), serial number "
    "is 5, there is an exception of aivec error, core id is 9, error code = 0x800000, dump info: pc start: "
    "0x124600c69b84, current: 0x124600c6a0f8, vec error info: 0x79.[FUNC:Process][FILE:core_proc.cc][LINE:333]\n"
    "        TraceBack (most recent call last):\n"
    "       The extend info: errcode:(0x800000, 0, 0) errorStr: The DDR address of the MTE instruction is out of "
    "range. fixp_error0 info: 0x1, fsmId:0, subErrType:4.[FUNC:Process][FILE:core_proc.cc][LINE:353]\n"
    "       Kernel task happen error, retCode=0x31, [vector core exception].[FUNC:PreCheck][FILE:task.cc][LINE:281]\n"
    "       [DFX_INFO]Aicore kernel execute failed, device_id=1, stream_id=7, report_stream_id=2, task_id=12, "
    "flip_num=0, fault kernel_name=add_custom, program id=4.[FUNC:Print][FILE:t.cc][LINE:1]\n"
)


# -- codes and classes


def test_data_file_is_what_the_tool_makes():
    done = subprocess.run([sys.executable, str(ROOT / "tools/generate_error_codes.py"), "--check"], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_every_code_of_the_table_is_known():
    table = json.loads((ROOT / "tools/api/acl_api.json").read_text())["error_codes"]
    assert set(CODES) == set(table.values())
    assert len(CODES) == 252
    for name, code in table.items():
        entry = CODES[code]
        assert name == entry["name"] or name in entry["aliases"]


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_prints_its_name_meaning_and_next_step(code):
    error = make_error(code, "aclrtX")
    assert error.name == CODES[code]["name"]
    assert error.meaning == CODES[code]["meaning"]
    assert error.cause == CODES[code]["cause"]
    text = str(error)
    assert text.startswith(f"aclrtX failed with {code} ({error.name}): {error.meaning}")
    assert CODES[code]["next_step"] in text
    assert "\n" not in text
    assert "None" not in text


def test_no_class_claims_an_unknown_code_and_no_code_has_two_classes():
    claimed = [code for kind in CLASSES for code in kind.__dict__.get("codes", ())]
    assert sorted(claimed) == sorted(set(claimed) & set(CODES))
    for kind in CLASSES:
        for code in kind.__dict__.get("codes", ()):
            assert error_class(code) is kind


@pytest.mark.parametrize(
    ("code", "kind", "builtin"),
    [
        (100000, errors.AclInvalidArgumentError, ValueError),
        (100001, errors.AclNotInitializedError, RuntimeError),
        (100002, errors.AclInitializationError, RuntimeError),
        (100039, errors.AclLibraryError, OSError),
        (107000, errors.AclInvalidArgumentError, ValueError),
        (107001, errors.AclInvalidDeviceError, ValueError),
        (107002, errors.AclContextError, RuntimeError),
        (107003, errors.AclStreamError, RuntimeError),
        (107006, errors.AclEventError, RuntimeError),
        (107027, errors.AclCaptureError, errors.AclStreamError),
        (200000, errors.AclMemoryError, MemoryError),
        (207000, errors.AclNotSupportedError, RuntimeError),
        (207001, errors.AclMemoryError, MemoryError),
        (207008, errors.AclResourceError, RuntimeError),
        (507015, errors.AclAiCoreError, errors.AclDeviceFaultError),
        (507018, errors.AclAiCpuError, errors.AclDeviceFaultError),
        (507035, errors.AclAiCoreError, errors.AclDeviceFaultError),
        (507046, errors.AclTimeoutError, TimeoutError),
        (507047, errors.AclTimeoutError, TimeoutError),
        (507000, AclError, RuntimeError),
    ],
)
def test_families(code, kind, builtin):
    error = make_error(code, "aclrtX")
    assert type(error) is kind
    assert isinstance(error, AclError)
    assert isinstance(error, builtin)
    assert (error.code, error.function) == (code, "aclrtX")


def test_only_device_faults_are_sticky():
    for code in CODES:
        error = make_error(code)
        assert error.sticky is isinstance(error, errors.AclDeviceFaultError)


def test_a_hung_kernel_is_a_fault_and_not_a_wait_that_may_be_repeated():
    assert not isinstance(make_error(507014), TimeoutError)
    assert not isinstance(make_error(507034), TimeoutError)


@given(st.integers(-(2**31), 2**31 - 1).filter(lambda code: code not in CODES))
def test_unknown_codes_print(code):
    error = make_error(code, "aclrtX", VALUE_TEXT)
    assert type(error) is AclError
    assert error.name == "UNKNOWN"
    assert str(error).startswith(f"aclrtX failed with {code}: Not a code of any CANN version pyacl knows")
    assert "value 17 for parameter cnt" in str(error)


@pytest.mark.parametrize(
    ("code", "category"),
    [(199999, "usage"), (299999, "resource"), (399999, "service"), (599999, "internal"), (7, "unknown")],
)
def test_category_by_first_digit(code, category):
    assert make_error(code).category == category


# -- construction, printing, pickling


def test_arguments_of_the_constructor():
    error = AclError(107000, "aclrtMemcpy", "too long")
    assert (error.code, error.function, error.message, error.raw_text) == (107000, "aclrtMemcpy", "too long", "")
    assert error.args == (107000, "aclrtMemcpy", "too long")
    assert repr(error) == "AclError(code=107000, function='aclrtMemcpy', message='too long')"
    assert " The library says: too long. " in str(error)


def test_an_os_error_stays_without_errno():
    error = make_error(507046, "aclrtSynchronizeStreamWithTimeout")
    assert (error.errno, error.filename) == (None, None)


def test_refusals_have_a_message_and_no_code():
    error = errors.ClosedError("the stream is closed", "aclrtRecordEvent", next_step="make another one")
    assert (error.code, error.name, error.meaning, error.function) == (None, "", "", "aclrtRecordEvent")
    assert str(error) == "the stream is closed. Next step: make another one."
    assert isinstance(errors.MissingFunctionError("aclrtX", "no"), errors.AclNotSupportedError)
    assert errors.MissingFunctionError("aclrtX", "no").function == "aclrtX"
    assert isinstance(errors.LibraryNotFoundError("no"), OSError)
    assert isinstance(errors.ForkedError("no"), errors.ClosedError)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_survives_pickle_and_copy(kind):
    if issubclass(kind, (errors.LibraryNotFoundError, errors.MissingFunctionError, errors.ClosedError)):
        error = kind("one", "two", next_step="three")
    else:
        error = kind(507015, "aclrtX", raw_text=FAULT_TEXT)
    before = str(error)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is kind
        assert str(twin) == before
        assert (twin.args, twin.code, twin.raw_text) == (error.args, error.code, error.raw_text)


def test_attributes_set_later_are_pickled():
    error = make_error(207001, "aclrtMalloc")
    error.requested, error.free, error.total = 1024, 10, 2048
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.requested, twin.free, twin.total) == (1024, 10, 2048)
    assert "Memory: requested 1024 bytes, free 10 bytes, total 2048 bytes." in str(twin)


def test_device_error_names_the_variable(monkeypatch):
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "2,3")
    assert "ASCEND_RT_VISIBLE_DEVICES is '2,3'" in str(make_error(107001, "aclrtSetDevice"))
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES")
    assert "ASCEND_RT_VISIBLE_DEVICES is not set" in str(make_error(107001, "aclrtSetDevice"))


def test_context_error_names_the_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(make_error(107002, "aclrtMalloc")), name="worker-5")
    thread.start()
    thread.join()
    assert found[0].thread == "worker-5"
    assert "Thread: worker-5." in str(found[0])


def test_no_data_is_read_before_it_is_needed():
    code = (
        "import sys, pyacl.errors as e; error = e.make_error(507015, 'aclrtX', 'text');"
        "assert e._table.cache_info().currsize == 0; assert 'pyacl._error_text' not in sys.modules;"
        "str(error); assert e._table.cache_info().currsize == 1; assert 'ctypes' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


# -- the library's text


def test_value_text():
    error = make_error(107000, "aclrtMemcpy", VALUE_TEXT)
    assert error.raw_text == VALUE_TEXT
    assert error.message_code == "EE1003"
    assert error.message == "rtMemcpy failed because value 17 for parameter cnt is invalid. Expected value: (0, 16]."
    assert (error.parameter, error.value, error.expected) == ("cnt", "17", "(0, 16]")
    assert "PID" not in str(error)
    assert "FUNC" not in str(error)


@pytest.mark.parametrize(
    ("text", "code", "parameter", "value"),
    [
        (f"{STAMP} Invalid_Argument_Null_Pointer(EH0002): Argument [devPtr] must not be null.\n"
         "        Solution: Try again with a correct pointer argument.\n", "EH0002", "devPtr", None),
        (f"{STAMP} Invalid_Argument(EH0001): Value [0] for [size] is invalid. Reason: zero.\n",
         "EH0001", "size", "0"),
        (f"{STAMP} Invalid_Argument_Null_Pointer(EE1004): rtLaunch failed because func cannot "
         "be a NULL pointer.\n", "EE1004", "func", None),
        (f"EE1003: {STAMP} rtSetDevice failed because value 9 for parameter devId is "
         "invalid. Expected value: [0, 2).\n", "EE1003", "devId", "9"),
    ],
)  # fmt: skip
def test_argument_texts(text, code, parameter, value):
    error = make_error(107000, "aclrtX", text)
    assert (error.message_code, error.parameter, error.value) == (code, parameter, value)
    assert not error.message.startswith(("[PID", "E"))


def test_fault_text():
    error = make_error(507035, "aclrtSynchronizeStream", FAULT_TEXT)
    assert error.message == "The DDR address of the MTE instruction is out of range"
    assert (error.device_id, error.stream_id, error.task_id, error.kernel_name) == (1, 7, 12, "add_custom")
    assert (error.core_id, error.facts["core_type"], error.facts["error_code"]) == (9, "aivec", "0x800000, 0, 0")
    assert (error.facts["pc_start"], error.facts["pc"]) == (0x124600C69B84, 0x124600C6A0F8)
    assert error.facts["ret_code"] == "vector core exception"
    assert error.message_code == "EZ9999"
    assert "Where: kernel add_custom, device 1, stream 7, task 12, core type aivec, core 9." in str(error)


def test_fault_text_of_older_and_newer_releases():
    old = FAULT_TEXT.replace(f"EZ9999{STAMP} (EZ9999): ", "EZ9999: [PID: 77] 2025-09-14-11:34:42.060.622")
    assert parse(old) == parse(FAULT_TEXT)
    newer = "errcode:(95) errorStr: The address is out of range. subErrType: 0x4.[FUNC:P][FILE:a][LINE:1]"
    assert parse(newer).facts["error_string"] == "The address is out of range"
    assert parse("kernel_name=none, device_id=0").facts == {"device_id": 0}


def test_text_of_the_getter_itself_is_dropped_and_kept_raw():
    error = make_error(107002, "aclrtMalloc", GETTER_NOISE)
    assert (error.message, error.message_code, error.facts) == ("", "", {})
    assert error.raw_text == GETTER_NOISE
    assert "rtGetDevMsg" not in str(error)


def test_getter_noise_behind_a_real_text_is_dropped():
    noisy = VALUE_TEXT + "        The argument is invalid.Reason: rtGetDevMsg execution failed, no context.\n"
    assert parse(noisy) == parse(VALUE_TEXT)


def test_inner_error_under_a_headline_of_the_getter():
    text = GETTER_NOISE + "        Free memory failed, ptr=0x12[FUNC:Free][FILE:mem.cc][LINE:1]\n"
    assert parse(text).headline == "Free memory failed, ptr=0x12"


def test_older_entries_below_the_newest_are_left_alone():
    assert parse(VALUE_TEXT + "\n" + FAULT_TEXT) == parse(VALUE_TEXT)
    assert parse(FAULT_TEXT + "\n" + VALUE_TEXT) == parse(FAULT_TEXT)
    assert parse(GETTER_NOISE + "\n" + FAULT_TEXT).headline == ""


def test_reason_of_an_inner_error():
    text = (
        "EE9999: Inner Error!\n"
        f"EE9999{STAMP} (EE9999):  event recorder null[FUNC:Elapsed][FILE:event.cc][LINE:1]\n"
        "        TraceBack (most recent call last):\n"
        "       rtEventElapsedTime execution failed, reason=invalid value[FUNC:FuncErrorReason][FILE:e.cc][LINE:65]\n"
    )
    assert make_error(507000, "aclrtEventElapsedTime", text).message == "event recorder null (invalid value)"


@pytest.mark.parametrize("code", [207001, 500002, 507033])
def test_memory_by_the_drivers_message_code(code):
    text = "[PID: 1] 2026-03-24-12:12:23.815.761 Memory_Allocation_Failure(EL0004): Failed to allocate memory.\n"
    error = make_error(code, "aclrtSetDevice", text)
    assert type(error) is errors.AclMemoryError
    assert error.code == code
    assert error.message == "Failed to allocate memory."


def test_memory_of_an_earlier_failure_does_not_count():
    text = f"{VALUE_TEXT}\n{STAMP} Memory_Allocation_Failure(EL0004): Failed to allocate memory.\n"
    assert type(make_error(107000, "aclrtMemcpy", text)) is errors.AclInvalidArgumentError


@given(st.text(max_size=300))
def test_any_text_is_taken(text):
    error = make_error(107000, "aclrtX", text)
    assert error.raw_text == text
    assert "\n" not in error.message
    assert len(error.message) <= 600
    assert str(error).startswith("aclrtX failed with 107000")
    assert pickle.loads(pickle.dumps(error)).raw_text == text


def test_a_very_long_text_is_cut_in_the_short_form_only():
    error = make_error(107000, "aclrtX", "x" * 5000)
    assert len(error.message) == 600
    assert error.message.endswith("...")
    assert len(error.raw_text) == 5000
