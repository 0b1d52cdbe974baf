"""Values of a definition as they stand in labels, and durations."""

from __future__ import annotations

MOST = 36  # letters of a value that is itself made of keys


def in_words(value: object) -> str:
    """`none`, `true`, `threads 2, batch_size 10 …`: a value in as few words as tell it apart for people."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        text = ", ".join(f"{key} {in_words(inner)}" for key, inner in value.items())
    elif isinstance(value, list):
        text = ", ".join(in_words(inner) for inner in value) or "none"
    else:
        return str(value)
    return text if len(text) <= MOST else f"{text[: MOST - 2].rstrip(' ,')} …"


def duration(seconds: float) -> str:
    """`3 min 05 s`, `42 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
