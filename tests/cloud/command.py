"""The command line in this process, as `main` calls it: what it says and the code it ends with."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from microshard import cli


@dataclass(frozen=True, slots=True)
class Said:
    """What a command has written, and its exit code."""

    code: int
    out: str
    err: str


def microshard(capsys: pytest.CaptureFixture[str], *words: object) -> Said:
    """Run a command line."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["microshard", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
    said = capsys.readouterr()
    assert "Traceback" not in said.out + said.err
    code = ended.value.code
    return Said(code if isinstance(code, int) else 0, said.out, said.err)
