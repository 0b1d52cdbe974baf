"""JSON to the types of `model/` and back: the one reader and the one writer of every record of a run's folder.

Reading ignores fields it does not know and gives those that are missing their default, so that runs of older versions
can be read; a whole file of a newer format is refused. Pydantic would do the same, and takes a tenth of a second to
import and another to look at these types, which every `microshard list` would wait for.
"""

import dataclasses
import json
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from microshard.errors import RunFolderError
from microshard.model.run_records import FORMAT

T = TypeVar("T")
Decoder = Callable[[Any], Any]


class NewerFormatError(RunFolderError):
    """A file written by a newer version of microshard."""


class DamagedFileError(RunFolderError):
    """A file of a run that cannot be read, or does not hold what its name says."""


def decode(kind: type[T], value: Any) -> T:
    """A value of a type from parsed JSON. Raises ValueError naming the field."""
    found: T = _decoder(cast("Any", kind))(value)
    return found


def read_file(kind: type[T], path: Path) -> T:
    """The record in a file. Raises FileNotFoundError, NewerFormatError, DamagedFileError."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise DamagedFileError(f"{path}: not a whole JSON file: {error}") from None
    version = value.get("format") if isinstance(value, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormatError(
            f"{path}: written in format {version} by a newer microshard; this version reads formats up to {FORMAT}"
        )
    try:
        return decode(kind, value)
    except ValueError as error:
        raise DamagedFileError(f"{path}: {error}") from None


def encode(value: Any) -> Any:
    """A record as a value for `json.dumps`; optional fields at their default are left out."""
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    found = {}
    for name, optional, default in _fields(cast("Any", type(value))):
        item = getattr(value, name)
        if not (optional and item == default):
            found[name] = encode(item)
    return found


def given(record: Any) -> dict[str, Any]:
    """The fields of a record that do not hold their default, as a value for `json.dumps`."""
    fields = _fields(cast("Any", type(record)))
    return {name: encode(value) for name, _, default in fields if (value := getattr(record, name)) != default}


@cache
def _fields(kind: Any) -> tuple[tuple[str, bool, Any], ...]:
    """Name, whether it is optional, and default of each field of a dataclass."""
    return tuple(
        (
            field.name,
            bool(field.metadata.get("optional")),
            field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
        )
        for field in dataclasses.fields(kind)
    )


def _wrong(value: object, expected: str) -> NoReturn:
    text = repr(value)
    raise ValueError(f"{text if len(text) <= 60 else text[:57] + '…'} is not {expected}")


@cache
def _decoder(kind: Any) -> Decoder:
    """What makes a value of this type of parsed JSON, or raises ValueError."""
    origin, arguments = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if origin in {Union, types.UnionType}:
        return _union(arguments)
    if origin in {list, tuple}:
        return _sequence(origin, _decoder(arguments[0]))
    if origin is dict:
        return _mapping(_decoder(arguments[1]))
    if origin is Literal:
        return _choice(arguments)
    return {Any: _as_it_is, float: _number}.get(kind) or _scalar(kind)


def _as_it_is(value: Any) -> Any:
    return value


def _number(value: Any) -> float:
    return value if type(value) is float else float(value) if type(value) is int else _wrong(value, "a number")


def _scalar(kind: type) -> Decoder:
    def scalar(value: Any) -> Any:
        return value if type(value) is kind else _wrong(value, kind.__name__)

    return scalar


def _choice(choices: tuple[Any, ...]) -> Decoder:
    def choice(value: Any) -> Any:
        return value if value in choices else _wrong(value, f"one of {', '.join(map(str, choices))}")

    return choice


def _union(members: tuple[Any, ...]) -> Decoder:
    """A type or None, or several plain types: no value of a record could be one of two dataclasses."""
    decoders = [_decoder(member) for member in members if member is not types.NoneType]
    plain = tuple(member for member in members if isinstance(member, type) and member is not types.NoneType)
    accepted = {*plain, *([int] if float in plain else [])}

    def union(value: Any) -> Any:
        if value is None and types.NoneType in members:
            return None
        if len(decoders) == 1:
            return decoders[0](value)
        return value if type(value) in accepted else _wrong(value, " or ".join(member.__name__ for member in plain))

    return union


def _sequence(kind: type, item: Decoder) -> Decoder:
    def sequence(value: Any) -> Any:
        if type(value) is not list:
            _wrong(value, "a list")
        return kind(value) if item is _as_it_is else kind([item(each) for each in value])

    return sequence


def _mapping(item: Decoder) -> Decoder:
    def mapping(value: Any) -> Any:
        if type(value) is not dict:
            _wrong(value, "an object")
        return value if item is _as_it_is else {key: item(each) for key, each in value.items()}

    return mapping


def _record(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind)}
    formerly = {
        field.metadata["formerly"]: field.name for field in dataclasses.fields(kind) if "formerly" in field.metadata
    }

    def record(value: Any) -> Any:
        if type(value) is not dict:
            _wrong(value, "an object")
        if formerly:
            value = {formerly.get(name, name): item for name, item in value.items()}
        found = {}
        for name, decoder in decoders.items():
            if name in value:
                try:
                    found[name] = decoder(value[name])
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        try:
            return kind(**found)
        except TypeError as error:
            raise ValueError(str(error).partition("() ")[2] or str(error)) from None

    return record
