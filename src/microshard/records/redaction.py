"""Takes out of a run's files what says who and where: addresses, accounts, users, paths, keys and passwords.

Nothing is guessed away silently: what is replaced becomes a word that says what stood there, the same thing the same
word throughout a bundle, so that the files still belong together.
"""

import contextlib
import getpass
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from microshard.errors import RunFolderError
from microshard.model.plan import Host
from microshard.records.run_folder import RunFolder

# Names that many machines have; they say nothing about anybody, and are words besides.
_COMMON_NAMES = frozenset(
    {"root", "admin", "administrator", "user", "users", "ubuntu", "debian", "centos", "nobody", "test", "home", "build"}
    | {"ec2-user", "mongodb", "mongod", "microshard", "local", "localhost", "runner"}
)

# Numbers hold dots and signs too: what distinguishes these forms is looked for before the whole form is, which tries
# every word of a text.
_CORES = {
    "resource": re.compile(r"-[0-9a-f]{8}"),
    "ip": re.compile(r"\.\d{1,3}\.\d{1,3}\.\d|:[0-9a-fA-F]{0,4}:"),
    "address": re.compile(r":[0-9a-f]{2}:|amazonaws|internal|ip-"),
}
# Kind of thing, what its text always holds (looked for first: most texts have none of it), and its form.
_PATTERNS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("key", ("-----BEGIN",), r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)"),
    ("key", ("ssh-",), r"\bssh-(?:rsa|ed25519|dss)\s+AAAA[0-9A-Za-z+/=]+(?:\s+[^\s\"\\]+@[^\s\"\\]+)?"),
    ("key", ("AKIA", "ASIA", "AROA", "AIDA"), r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b"),
    ("login", ("://",), r"(?<=://)[^/\s\"'@]+:[^/\s\"'@]+(?=@)"),
    ("account", ("arn:",), r"(?<=:)\d{12}(?=:)"),
    ("account", ("ccount",), r"(?<=ccount)[\w\" ]{0,8}[:= ]{1,3}\"?\d{12}\b"),
    ("resource", ("-",), r"\b(?:i|vol|subnet|vpc|sg|eni|rtb|igw|eipalloc|sir|snap|key|pg)-[0-9a-f]{8,17}\b"),
    (
        "address",
        ("amazonaws", "internal"),
        r"\b[\w-]+(?:\.[\w-]+)*\.(?:compute(?:-1)?\.amazonaws\.com|ec2\.internal|compute\.internal)\b",
    ),
    ("address", ("ip-",), r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b"),
    ("address", (":",), r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b"),  # of a network card
    ("ip", (".",), r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\d)"),
    ("ip", ("::",), r"(?<![\w:.])[0-9a-fA-F:]*::[0-9a-fA-F:]*(?![\w:])"),
    ("ip", (":",), r"(?<![\w:.])(?:[0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}(?![\w:])"),
    ("mail", ("@",), r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b"),
    ("user", ("/home/", "/Users/"), r"(?<=/home/)[^/\s\"':]+|(?<=/Users/)[^/\s\"':]+"),
)
_JSON_WORDS = {"true", "false", "null", "NaN", "Infinity", "e", "E"}
_REMEMBERED = 200_000
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_TOKEN = re.compile(_STRING.pattern + r"|[^\s0-9{}\[\],:.+-]+")  # a string, or a word outside of strings
# JSON members whose value is a secret whatever it looks like.
_SECRET_MEMBER = re.compile(
    r'("(?:[\w-]*(?:password|passwd|secret|private_key|privatekey|key_material|keyfile_content|token))"\s*:\s*)'
    r'"(?:[^"\\]|\\.)+"',
    re.IGNORECASE,
)
_SECRET_SETTING = re.compile(
    r"(?i)(?<![\w\"])([\w.-]*(?:password|passwd|secret|secret_access_key|session_token)\s*[:=]\s*)"
    r"[^\s{}\[\]\"',|>][^\s\"',}\\]*"
)


# Looked for first: the two above try every beginning of every word, and a histogram is a word of thousands of letters.
_SECRET_HINTS = ("passw", "secret", "private_key", "privatekey", "key_material", "keyfile_content", "token")


class Redactor:
    """Replaces in texts what must not leave this machine."""

    def __init__(self, known: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        """`known`: text → what kind of thing it is; `secrets`: texts that vanish altogether."""
        self._words: dict[str, str] = {}
        self._counts: dict[str, int] = {}
        self._harmless: set[str] = set()
        self._secrets = sorted({s for s in secrets if len(s) >= 8}, key=len, reverse=True)
        for text, word in known.items():
            self._words[text] = word
        # The longest first: a folder in a home folder is the folder.
        literal = [re.escape(text) for text in sorted(known, key=len, reverse=True) if text]
        self._known = re.compile("|".join(rf"(?<![\w-]){t}(?![\w-])" for t in literal)) if literal else None
        self._patterns = [(kind, hints, re.compile(pattern, re.DOTALL)) for kind, hints, pattern in _PATTERNS]

    def __call__(self, text: str) -> str:
        """The text without what must not be in it."""
        for secret in self._secrets:
            text = text.replace(secret, "(removed)")
        lowered = text.lower()
        if any(hint in lowered for hint in _SECRET_HINTS):
            text = _SECRET_MEMBER.sub(r'\1"(removed)"', text)
            text = _SECRET_SETTING.sub(r"\1(removed)", text)
        if self._known is not None and any(word in text for word in self._words):
            text = self._known.sub(lambda found: self._words[found.group()], text)
        for kind, hints, pattern in self._patterns:
            if any(hint in text for hint in hints) and (kind not in _CORES or _CORES[kind].search(text)):
                text = pattern.sub(lambda found, kind=kind: self._alias(kind, found.group()), text)  # type: ignore[misc]
        return text

    def json(self, text: str) -> str:
        """As for any text, of JSON or JSON lines, and ten times as fast: numbers say nothing, and strings repeat."""
        tokens = set(_TOKEN.findall(text)) - self._harmless
        strings = {token for token in tokens if _STRING.fullmatch(token)}
        if not _JSON_WORDS.issuperset(tokens - strings):
            return self(text)  # not JSON throughout
        if any(_SECRET_MEMBER.match(f'{string}: "x"') for string in strings):
            return self(text)
        for string in sorted(strings, key=len, reverse=True):
            clean = self(string)
            if clean != string:
                text = text.replace(string, clean)
            elif len(self._harmless) < _REMEMBERED:
                self._harmless.add(string)
        if "ccount" in text:  # a number may be an account's
            text = re.sub(r'("\w*[aA]ccount\w*"\s*:\s*)\d{12}\b', r"\g<1>0", text)
        return text

    def _alias(self, kind: str, text: str) -> str:
        if text in self._words:
            return self._words[text]
        if kind == "ip":
            if not _tells(text):
                return text
            kind = "address"
        if kind == "user" and text in _COMMON_NAMES:
            return text
        if kind in {"key", "login"}:
            return f"({kind} removed)"
        if kind == "account":
            return re.sub(r"\d{12}", "000000000000", text)
        number = self._counts[kind] = self._counts.get(kind, 0) + 1
        self._words[text] = f"{kind}{number}"
        return self._words[text]


def _tells(text: str) -> bool:
    """Whether it is an IP address, and not one that every machine has."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (address.is_loopback or address.is_unspecified)


def for_run(run: Path, project: Path) -> Redactor:
    """What is known about a run and this machine: its paths, hosts, users and secrets."""
    known = {str(run): "RUN", str(run.parent): "RUNS", str(project): "PROJECT"}
    with contextlib.suppress(OSError, RunFolderError):
        request = RunFolder(run).run_lock().request
        if request is not None and len(Path(request.file).parts) > 2:
            known.setdefault(str(Path(request.file).parent), "EXPERIMENTS")
    home = str(Path.home())
    if len(home) > 1:
        known.setdefault(home, "HOME")
    for name in (_user(), socket.gethostname(), socket.gethostname().split(".")[0]):
        if len(name) >= 3 and name.lower() not in _COMMON_NAMES:
            known.setdefault(name, "user" if name == _user() else "controller")
    for number, host in enumerate(_hosts(run), start=1):
        for text in (host.name, host.address):
            if len(text) >= 3 and text not in {"local", "localhost", "127.0.0.1", "::1"}:
                known.setdefault(text, f"host{number}")
    secrets = []
    for path in sorted((run / "secrets").rglob("*")) if (run / "secrets").is_dir() else []:
        if path.is_file():
            content = path.read_text(encoding="utf-8", errors="replace").strip()
            secrets += [content, *(line.strip() for line in content.splitlines())]
    return Redactor(known, secrets)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _hosts(run: Path) -> tuple[Host, ...]:
    with contextlib.suppress(OSError, RunFolderError):
        return RunFolder(run).plan_outline().hosts
    return ()
