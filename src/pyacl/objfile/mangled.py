"""C++ symbols: a plain function's name, and what its parameters are as words of a signature (`pyacl.arguments`)."""

from __future__ import annotations

import re

_NAME = re.compile(r"_Z(\d+)")
_LENGTH = re.compile(r"\d+")
_SUBSTITUTION = re.compile(r"S([0-9A-Z]*)_")
_BUILTIN = re.compile(r"D(?:F16[_b]|h)|[a-z]")

#: Itanium codes of the types a kernel takes; half is what bisheng calls it.
_WORDS = {
    "a": "i8", "c": "i8", "h": "u8", "s": "i16", "t": "u16", "i": "i32", "j": "u32", "l": "i64", "m": "u64",
    "x": "i64", "y": "u64", "f": "f32", "d": "f64", "b": "bool", "Dh": "f16", "DF16_": "f16", "DF16b": "bf16",
}  # fmt: skip
_VENDOR_WORDS = {"__bf16": "bf16"}


def split(symbol: str) -> tuple[str, str | None]:
    """Return a function's name and the codes of its parameters; the symbol and None for C functions and the rest."""
    match = _NAME.match(symbol)
    if match is None or len(match[1]) > 4:
        return symbol, None
    end = match.end() + int(match[1])
    return symbol[match.end() : end], symbol[end:]


def parameter_words(codes: str) -> list[str] | None:
    """Return the parameters as words such as ``ptr`` and ``u32``; None where one is neither a number nor a pointer."""
    if codes == "v":
        return []
    words: list[str] = []
    seen: list[str | None] = []
    at = 0
    try:
        while at < len(codes):
            word, at = _parse(codes, at, seen)
            if word is None:
                return None
            words.append(word)
    except (LookupError, RecursionError):
        return None
    return words


def _parse(codes: str, at: int, seen: list[str | None]) -> tuple[str | None, int]:
    """Return the word of the type at a place (None for a class), and where it ends; LookupError gives up.

    `seen` are the types that a later ``S_``, ``S0_``, ... stands for: all that are more than a built-in one.
    """
    code = codes[at]
    if code == "P":
        _, end = _parse(codes, at + 1, seen)
        seen.append("ptr")
        return "ptr", end
    if code in "UVKr":  # address spaces, volatile, const: together they make one type of another
        while codes[at] in "UVKr":
            at = _source_name(codes, at + 1)[1] if codes[at] == "U" else at + 1
        word, end = _parse(codes, at, seen)
        seen.append(word)
        return word, end
    if code == "S":
        match = _SUBSTITUTION.match(codes, at)
        if match is None:
            raise LookupError(code)
        return seen[int(match[1], 36) + 1 if match[1] else 0], match.end()
    if code.isdecimal() or code == "u":
        name, end = _source_name(codes, at + (code == "u"))
        word = _VENDOR_WORDS.get(name) if code == "u" else None
        seen.append(word)
        return word, end
    match = _BUILTIN.match(codes, at)
    if match is None:
        raise LookupError(code)
    return (None if match[0] == "v" else _WORDS[match[0]]), match.end()


def _source_name(codes: str, at: int) -> tuple[str, int]:
    match = _LENGTH.match(codes, at)
    if match is None or len(match[0]) > 4:
        raise LookupError(codes[at:])
    end = match.end() + int(match[0])
    if end > len(codes):
        raise LookupError(codes[at:])
    return codes[match.end() : end], end
