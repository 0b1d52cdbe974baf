"""The few ways this project calls AWS: once, over all pages, or until a new thing is visible."""

from __future__ import annotations

import difflib
import functools
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from microshard.backends.ec2.errors import NO_LOGIN, THROTTLED, UNREACHABLE, CloudError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait, in seconds."""

    launch: float = 300.0  # for instances to run and volumes to attach
    terminate: float = 600.0  # for instances to be gone: some types take minutes
    visible: float = 30.0  # for a new thing to be seen by other calls (eventual consistency)
    poll: float = 0.5  # first pause between two looks; grows to ten times that
    connect: float = 10.0  # for a connection to AWS
    answer: float = 60.0  # for an answer of AWS
    attempts: int = 5  # tries of one call that is throttled or gets no answer, the first included
    backoff: float = 0.5  # first pause before a try is repeated; doubles, with jitter

    def looks(self, seconds: float) -> Iterator[None]:
        """Yield at once and then at growing intervals, a last time when `seconds` are over."""
        deadline = time.monotonic() + seconds
        pause = self.poll
        while True:
            yield
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(pause, left))
            pause = min(pause * 1.3, self.poll * 10)


class Api:
    """EC2 of one region (and SSM's public parameters, the quotas, and who asks).

    Two clients: reads go through botocore's own standard retries. Calls that make something get one attempt each and
    are repeated here, because botocore would repeat InsufficientInstanceCapacity (HTTP 500) as if it were a hiccup,
    and would repeat a creation whose answer was lost without first looking whether it had worked.
    """

    def __init__(
        self,
        region: str,
        *,
        endpoint: str | None = None,
        profile: str | None = None,
        patience: RetryPolicy | None = None,
    ) -> None:
        import boto3  # type: ignore[import-untyped]  # noqa: PLC0415 (0.3 s that only EC2 runs should pay)
        from botocore.config import Config  # type: ignore[import-untyped]  # noqa: PLC0415

        self.region = region
        self.patience = patience or RetryPolicy()
        session = _session(boto3, region, profile)
        times = {"connect_timeout": self.patience.connect, "read_timeout": self.patience.answer}
        reading = Config(retries={"mode": "standard", "total_max_attempts": self.patience.attempts}, **times)
        making = Config(retries={"mode": "standard", "total_max_attempts": 1}, **times)
        self._reader = session.client("ec2", endpoint_url=endpoint, config=reading)
        self._maker = session.client("ec2", endpoint_url=endpoint, config=making)
        self._other = functools.cache(lambda name: session.client(name, endpoint_url=endpoint, config=reading))

    def call(self, action: str, **parameters: Any) -> dict[str, Any]:
        """One call with standard retries, for reading and deleting. Raises CloudError."""
        return _translated(self._reader, action, parameters)

    def make(self, action: str, **parameters: Any) -> dict[str, Any]:
        """One attempt of a call that makes something. Raises CloudError; after it, see `is_unclear`."""
        return _translated(self._maker, action, parameters)

    def parameter(self, name: str) -> str:
        """A public SSM parameter. Raises CloudError."""
        return str(_translated(self._other("ssm"), "get_parameter", {"Name": name})["Parameter"]["Value"])

    def quota(self, service: str, code: str) -> float:
        """The account's own quota, or AWS's default for it. Raises CloudError."""
        wish = {"ServiceCode": service, "QuotaCode": code}
        return float(_translated(self._other("service-quotas"), "get_service_quota", wish)["Quota"]["Value"])

    def account(self) -> tuple[str, str]:
        """Number of the account that pays, and as whom it is spoken to (ARN). Raises CloudError."""
        # Nobody needs a permission for it (STS API reference).
        answer = _translated(self._other("sts"), "get_caller_identity", {})
        return str(answer["Account"]), str(answer["Arn"])

    def may(self, action: str, **parameters: Any) -> bool | None:
        """Whether a call would be allowed, asked with DryRun; None when AWS does not say. Raises CloudError."""
        try:
            _translated(self._maker, action, {**parameters, "DryRun": True})
        except CloudError as error:
            if error.code == "DryRunOperation":
                return True
            if error.code == "UnauthorizedOperation":
                return False
            if error.code == UNREACHABLE or error.code in THROTTLED or error.code in NO_LOGIN:
                raise
        return None

    def pages(self, action: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """The entries of all pages of a Describe call. Raises CloudError."""
        entries: list[dict[str, Any]] = []
        token: str | None = None
        while True:
            more = {"NextToken": token} if token else {}
            answer = self.call(action, **parameters, **more)
            entries.extend(answer.get(key, ()))
            token = answer.get("NextToken")
            if not token:
                return entries

    def when_visible(self, action: str, **parameters: Any) -> dict[str, Any]:
        """A call that names something made a moment ago: repeated while AWS does not know it yet. Raises CloudError."""
        problem: CloudError | None = None
        for _ in self.patience.looks(self.patience.visible):
            try:
                return self.call(action, **parameters)
            except CloudError as error:
                if not is_missing(error):
                    raise
                problem = error
        raise problem or AssertionError("looks() yields at least once")

    def pause(self, attempt: int) -> None:
        """Wait before try number `attempt` + 1 (attempt from 0), longer each time, with jitter."""
        time.sleep(self.patience.backoff * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311


def is_missing(error: CloudError) -> bool:
    """AWS does not know what the call named: not yet, or no longer."""
    return error.code.endswith((".NotFound", ".Unknown", "NotFound"))


def is_unclear(error: CloudError) -> bool:
    """The call may be repeated: it was throttled, or it is not known whether it was carried out."""
    return error.code in THROTTLED or error.code in {UNREACHABLE, "InternalError", "Unavailable", "ServiceUnavailable"}


def default_region() -> str | None:
    """The region of the AWS configuration: AWS_REGION, AWS_DEFAULT_REGION or the profile. Raises CloudError."""
    import botocore.session  # type: ignore[import-untyped]  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        found = os.environ.get("AWS_REGION") or botocore.session.get_session().get_config_variable("region")
    except BotoCoreError as error:
        raise CloudError("session", "NoCredentials", f"{error}.") from error
    return str(found) if found else None


@functools.cache
def _models() -> Any:
    """The descriptions of AWS's services, read once: EC2's takes 0.2 s."""
    import botocore.loaders  # type: ignore[import-untyped]  # noqa: PLC0415

    return botocore.loaders.create_loader()


def _botocore_session() -> Any:
    import botocore.session  # noqa: PLC0415

    session = botocore.session.get_session()
    session.register_component("data_loader", _models())
    return session


def _session(boto3: Any, region: str, profile: str | None) -> Any:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        inner = _botocore_session()
        session = boto3.Session(region_name=region, profile_name=profile, botocore_session=inner)
        inner.get_scoped_config()  # a profile that is not there is told here, whichever version of botocore it is
        known: list[str] = session.get_available_regions("ec2")
    except BotoCoreError as error:
        raise CloudError("session", "NoCredentials", f"{error}.") from error
    if region not in known:
        near = difflib.get_close_matches(region, known, 1)
        raise CloudError(
            "session", "UnknownRegion", f"no region is named {region}" + (f"; did you mean {near[0]}?" if near else "")
        )
    return session


def _translated(client: Any, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
    from botocore import exceptions as broken  # noqa: PLC0415
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]  # noqa: PLC0415

    name = "".join(part.capitalize() for part in action.split("_"))
    try:
        answer: dict[str, Any] = getattr(client, action)(**parameters)
    except broken.ClientError as error:
        told = error.response.get("Error", {})
        raise CloudError(name, str(told.get("Code", "Unknown")), str(told.get("Message", error))) from error
    except (broken.NoCredentialsError, broken.PartialCredentialsError, broken.CredentialRetrievalError) as error:
        raise CloudError(name, "NoCredentials", f"{error}.") from error
    except (broken.TokenRetrievalError, broken.SSOError) as error:
        raise CloudError(name, "ExpiredToken", f"{error}.") from error
    except (broken.HTTPClientError, broken.EndpointConnectionError, ResponseParserError) as error:
        raise CloudError(name, UNREACHABLE, f"{error}") from error
    except broken.BotoCoreError as error:
        raise CloudError(name, type(error).__name__, f"{error}") from error
    return answer
