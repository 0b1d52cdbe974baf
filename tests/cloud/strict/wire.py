"""EC2's query protocol: requests as they arrive, and answers as EC2 writes them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"


class ApiError(Exception):
    """An error answer of EC2."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = "text/xml;charset=UTF-8"


@dataclass(slots=True)
class Call:
    """One request: action and the flat parameters of the query protocol (`NetworkInterface.1.SubnetId`)."""

    service: str  # ec2, ssm, servicequotas or sts
    region: str
    action: str
    parameters: dict[str, str] = field(default_factory=dict)
    index: int = 0  # of all calls since the last reset, from 1
    alter: tuple[str, ...] = ()  # what faults change in a launch

    def get(self, name: str, default: str = "") -> str:
        """A parameter, or the default."""
        return self.parameters.get(name, default)

    def values(self, prefix: str) -> list[str]:
        """The values of `PREFIX.1`, `PREFIX.2` … in their order."""
        found = [
            (int(k.rpartition(".")[2]), v) for k, v in self.parameters.items() if re.fullmatch(f"{prefix}\\.\\d+", k)
        ]
        return [value for _, value in sorted(found)]

    def members(self, prefix: str) -> list[dict[str, str]]:
        """The structures `PREFIX.1.*`, `PREFIX.2.*` …, each with the rest of the name as key."""
        found: dict[int, dict[str, str]] = {}
        for name, value in self.parameters.items():
            match = re.fullmatch(f"{prefix}\\.(\\d+)\\.(.+)", name)
            if match:
                found.setdefault(int(match[1]), {})[match[2]] = value
        return [found[number] for number in sorted(found)]

    def tags(self, resource_type: str) -> dict[str, str]:
        """The tags the call puts on new resources of this type."""
        found: dict[str, str] = {}
        for specification in self.members("TagSpecification"):
            if specification.get("ResourceType") == resource_type:
                inner = Call("ec2", self.region, "", specification)
                found.update({tag["Key"]: tag.get("Value", "") for tag in inner.members("Tag")})
        return found

    def filters(self) -> dict[str, list[str]]:
        """The filters of a Describe call."""
        return {entry["Name"]: Call("ec2", self.region, "", entry).values("Value") for entry in self.members("Filter")}


def error(problem: ApiError) -> Answer:
    """An error as EC2 answers it."""
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Response><Errors><Error><Code>{escape(problem.code)}</Code><Message>{escape(problem.message)}</Message>"
        "</Error></Errors><RequestID>00000000-0000-4000-8000-000000000000</RequestID></Response>"
    )
    return Answer(text.encode(), problem.status)


def json_answer(content: object, status: int = 200) -> Answer:
    """An answer of a service that speaks JSON."""
    return Answer(json.dumps(content).encode(), status, "application/x-amz-json-1.1")


def result(action: str, inner: str) -> Answer:
    """A successful answer with `inner` as its content."""
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{NAMESPACE}">'
        f"<requestId>00000000-0000-4000-8000-000000000000</requestId>{inner}</{action}Response>"
    )
    return Answer(text.encode())


def element(name: str, value: str | int | bool | None) -> str:
    """`<name>value</name>`; nothing for None."""
    if value is None:
        return ""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"<{name}>{escape(text)}</{name}>"


def items(name: str, entries: Iterable[str]) -> str:
    """A list as EC2 writes it."""
    return f"<{name}>{''.join(f'<item>{entry}</item>' for entry in entries)}</{name}>"


def tag_set(tags: Mapping[str, str]) -> str:
    """Tags as EC2 writes them."""
    return items("tagSet", (element("key", k) + element("value", v) for k, v in sorted(tags.items())))
