"""Coverage-guided fuzzing of the loader: `python -m tests.faults.fuzz_loader SECONDS CORPUS`.

atheris watches which branches of the definition package an input takes and breeds from those that take new ones. It
begins with the shipped experiments and the traps. Ends with exit code 0 when every input loaded or was refused as it
should be; otherwise the input is written into CORPUS and its name is printed.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["microshard.experiment"]):
    from microshard.experiment import yaml_reader
    from microshard.experiment.errors import DefinitionError
    from microshard.experiment.load import build
    from microshard.experiment.matrix import expand

from tests.faults.definitions import SHIPPED, TRAPS, unclear_error


def one(data: bytes) -> None:
    """Load `data` as an experiment file; anything but points or clear problems is an error."""
    text = data.decode("utf-8", "replace")
    try:
        expand(build(*yaml_reader.parse("x.yml", text)))
    except DefinitionError as error:
        wrong = unclear_error(error, text)
        if wrong:
            raise AssertionError(wrong) from None


def main() -> None:
    """Fuzz for as many seconds as the first argument says."""
    seconds, corpus = sys.argv[1], Path(sys.argv[2])
    corpus.mkdir(parents=True, exist_ok=True)
    for file in SHIPPED:
        (corpus / file.name).write_bytes(file.read_bytes())
    for name, trap in TRAPS.items():
        content = trap if isinstance(trap, bytes) else trap.encode()
        if len(content) < 4000:
            (corpus / name.replace(" ", "-")).write_bytes(content)
    options = [
        f"-max_total_time={seconds}",
        "-timeout=4",
        "-max_len=4000",
        "-seed=1",
        f"-artifact_prefix={corpus}/bad-",
    ]
    words = corpus.parent / "words"
    keys = {w.strip(" :-{}[],'\"") for f in SHIPPED for w in f.read_text(encoding="utf-8").split()}
    words.write_text("".join(f'"{w}"\n' for w in sorted(keys) if w.isascii() and w.isidentifier()), encoding="utf-8")
    atheris.Setup([sys.argv[0], f"-dict={words}", *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
