"""Commands of the system, and what is said when they fail."""

import subprocess


class BedError(Exception):
    """The bed cannot be made, or a part of it cannot be removed."""


def command(*words: str, patience: float = 60) -> str:
    """What a command printed. BedError with its own words when it fails."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=patience, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BedError(f"{words[0]}: {error}") from error
    if done.returncode:
        raise BedError(f"{' '.join(words)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()
