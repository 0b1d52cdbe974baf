"""YAML 1.2's scalars: what text without quotes means, what it never means, and how values are named in messages."""

from __future__ import annotations

import datetime
import json
import math
import re
from typing import Any

from microshard.experiment.errors import printable

_INT = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_OCTAL = re.compile(r"[-+]?0[0-9]+")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True) | dict.fromkeys(("false", "False", "FALSE"), False)

# Text in YAML 1.2, something else in YAML 1.1 and so for most people who type it.
_YAML_1_1 = (
    (re.compile(r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF"), "true or false"),
    (re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?"), "a date"),
    (re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?|[-+]?0b[01_]+"), "a number"),
    (re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?"), "a time"),
)


def resolve(text: str) -> tuple[Any, str]:  # noqa: PLR0911 - one form of scalar each
    """What plain text means, and a sentence on why it is refused (empty when it is not)."""
    if text in _WORDS:
        return _WORDS[text], ""
    if text[0] not in "-+.0123456789":
        return text, ""
    if _OCTAL.fullmatch(text):
        return (
            None,
            f"{printable(text, 30)} may be octal or decimal; write it without the leading 0, or as text in quotes",
        )
    if _INT.fullmatch(text) or _BASED.fullmatch(text):
        # No 64-bit number has more digits, and Python refuses to convert some thousands of them.
        number = int(text, 0) if len(text) <= 24 else None
        if number is None or not -(2**63) <= number < 2**63:
            return None, f"{printable(text, 30)} does not fit 64 bits"
        return number, ""
    if _FLOAT.fullmatch(text):
        value = float(text)
        return (value, "") if math.isfinite(value) else (None, f"{printable(text, 30)} is too large for a number")
    if _NOT_FINITE.fullmatch(text):
        return None, f"{text} is no figure an experiment can use; write a number"
    return text, ""


def yaml_1_1(text: str) -> str:
    """What plain text would have meant in YAML 1.1, empty when it was text there too."""
    return next((meaning for pattern, meaning in _YAML_1_1 if pattern.fullmatch(text)), "")


def found(value: object) -> str:  # noqa: PLR0911 - one type each
    """A value in few words."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the text "{printable(value, 40)}"' if value else "empty text"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, dict):
        keys = [printable(str(k), 24) for k in list(value)[:3]]
        return f"a mapping with {', '.join(keys)}{' …' if len(value) > 3 else ''}" if keys else "an empty mapping"
    return f"a {type(value).__name__}"


def written(value: object) -> str:
    """A value as one writes it in the file, shortened."""
    if isinstance(value, str):
        return printable(value, 40)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return printable(json.dumps(value, ensure_ascii=False, default=str), 40)
