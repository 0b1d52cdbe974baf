"""How this project calls AWS: single calls, paged lists, calls repeated until a new resource is visible, and errors."""

import difflib
import functools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from microshard.errors import EXIT_PLACE, MicroshardError
from microshard.model.ec2_facts import facts

# Missing capacity: another zone, type or market may have it. "Unsupported" is a type that is not offered in a zone.
CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity", "UnfulfillableCapacity", "Unsupported", "Server.InsufficientInstanceCapacity",
    }
)  # fmt: skip
# Missing on the spot market only: on-demand capacity has separate quotas.
SPOT_CAPACITY = CAPACITY | {"MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "Server.SpotInstanceTermination"}
_THROTTLED = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException"}
)
# AWS does not accept the credentials: nothing else will work either.
NO_LOGIN = frozenset(
    {
        "NoCredentials", "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch",
        "ExpiredToken", "ExpiredTokenException", "RequestExpired",
    }
)  # fmt: skip
_UNREACHABLE = "Unreachable"
# The price list is served in three regions, for all of the partition (AWS Price List endpoints). The filters
# are what an instance launched by RunInstances is billed as: shared tenancy, Linux without further software.
_LISTED_VOLUME = {"productFamily": "Storage"}  # the same of EBS: capacity, without IOPS and throughput
_PRICING_REGION = "us-east-1"
_LISTED = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}

_POLICY_ADVICE = "The IAM policy lacks this action; docs/ec2.md has the smallest policy that suffices."
_ADVICE = {
    "NoCredentials": "Give credentials as for the AWS CLI: AWS_PROFILE, an SSO login, or an access key.",
    "AuthFailure": "The access key is unknown or disabled, or the region is not enabled for this account.",
    "InvalidClientTokenId": "The access key is unknown or disabled.",
    "UnrecognizedClientException": "The access key is unknown or disabled.",
    "SignatureDoesNotMatch": "The secret key does not match the access key.",
    "ExpiredToken": "The session has expired: log in again.",
    "ExpiredTokenException": "The session has expired: log in again.",
    "RequestExpired": "The session has expired, or this machine's clock is wrong.",
    "UnauthorizedOperation": _POLICY_ADVICE,
    "AccessDeniedException": _POLICY_ADVICE,
    "VcpuLimitExceeded": "Request a higher quota of running instances (Service Quotas), or use smaller or fewer hosts.",
    "InstanceLimitExceeded": "Request a higher quota of running instances (Service Quotas), or use fewer hosts.",
    "MaxSpotInstanceCountExceeded": "Request a higher quota of spot instances, or use market on_demand.",
    "VolumeLimitExceeded": "Request a higher EBS quota, or use smaller volumes.",
    "MaxIOPSLimitExceeded": "Request a higher EBS quota of provisioned IOPS, or provision fewer.",
    # AWS re:Post, "EC2 instance changes from pending": what this reason of an instance's end means.
    "Client.InternalError": "Its volumes are encrypted with the account's default key for EBS; a customer managed one "
    "must allow you kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and "
    "kms:ReEncrypt*.",
    "VpcLimitExceeded": "Name an existing VPC or subnet, or delete unused VPCs.",
    "InvalidAMIID.NotFound": "An image belongs to one region: prefer the name of a distribution (al2023, debian-12).",
    _UNREACHABLE: "Check the network, the region and the endpoint.",
}


def advice(code: str) -> str:
    """Return what to do about an error of AWS, or about an instance that ended for this reason; empty where unknown."""
    return _ADVICE.get(code) or _ADVICE.get(code.removeprefix("Client."), "")


class CloudError(MicroshardError):
    """A call to AWS failed; `code` is AWS's name of the error."""

    exit_code = EXIT_PLACE

    def __init__(self, action: str, code: str, message: str) -> None:
        remedy = advice(code)
        super().__init__(f"{action}: {code}: {message}" + (f" {remedy}" if remedy else ""))
        self.action = action
        self.code = code
        self.message = message


class CapacityError(CloudError):
    """No allowed zone, type or market has capacity; `attempts` lists the launches that were tried."""

    def __init__(self, group: str, code: str, attempts: Sequence[str]) -> None:
        super().__init__("RunInstances", code, f"no capacity for {group}; tried {'; '.join(attempts)}.")
        self.attempts = tuple(attempts)


class LaunchError(CloudError):
    """Instances or volumes did not come up as requested."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait, in seconds, and how often to try."""

    launch: float = 300.0  # for instances to run and volumes to attach
    terminate: float = 600.0  # for instances to be gone: some types take minutes
    # For what depends on instances that have ended to let go: gateways, subnets and security groups answer
    # DependencyViolation for up to 20 minutes (terraform-provider-aws, pull request 6322).
    depend: float = 1200.0
    visible: float = 30.0  # for a new resource to be seen by other calls (eventual consistency)
    poll: float = 0.5  # first pause between two polls; grows to ten times that
    connect: float = 10.0  # for a connection to AWS
    answer: float = 60.0  # for an answer of AWS
    attempts: int = 5  # of one call that is throttled or gets no answer, the first included
    backoff: float = 0.5  # first pause before a call is repeated; doubles, with jitter
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def polls(self, seconds: float, longest: float | None = None) -> Iterator[None]:
        """Yield at once and then at growing intervals, a last time when `seconds` are over.

        `longest` is the longest interval, in seconds; by default ten times the first.
        """
        deadline = self.clock() + seconds
        pause = self.poll
        while True:
            yield
            left = deadline - self.clock()
            if left <= 0:
                return
            self.sleep(min(pause, left))
            pause = min(pause * 1.3, longest or self.poll * 10)

    def back_off(self, attempt: int) -> None:
        """Wait before attempt number `attempt` + 1 (from 0), longer each time, with jitter."""
        time.sleep(self.backoff * 2**attempt * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, not a secret


class Api:
    """EC2 of one region, with SSM's public parameters, Service Quotas and the caller's identity.

    There are two EC2 clients: reads go through botocore's standard retries. Calls that create something get one attempt
    each and are repeated here, because botocore would retry InsufficientInstanceCapacity (HTTP 500) as a transient
    error, and would repeat a creation whose answer was lost without first checking whether it had worked.
    """

    def __init__(
        self, region: str, *, endpoint: str | None = None, profile: str | None = None, retry: RetryPolicy | None = None
    ) -> None:
        import boto3  # type: ignore[import-untyped]  # noqa: PLC0415 - 0.3 s that only EC2 runs should pay
        from botocore.config import Config  # type: ignore[import-untyped]  # noqa: PLC0415 - with boto3

        self.region = region
        self.retry = retry or RetryPolicy()
        session = _session(boto3, region, profile)
        timeouts = {"connect_timeout": self.retry.connect, "read_timeout": self.retry.answer}
        retrying = Config(retries={"mode": "standard", "total_max_attempts": self.retry.attempts}, **timeouts)
        once = Config(retries={"mode": "standard", "total_max_attempts": 1}, **timeouts)
        self._reader = session.client("ec2", endpoint_url=endpoint, config=retrying)
        self._creator = session.client("ec2", endpoint_url=endpoint, config=once)
        self._service = functools.cache(
            lambda name, at=region: session.client(name, region_name=at, endpoint_url=endpoint, config=retrying)
        )

    def call(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Make one call with standard retries, for reading and deleting. Raises CloudError."""
        return invoke(self._reader, action, parameters)

    def create(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Make a single attempt of a call that creates something. Raises CloudError; after it, see `is_unclear`."""
        return invoke(self._creator, action, parameters)

    def parameter(self, name: str) -> str:
        """Return a public SSM parameter. Raises CloudError."""
        return str(invoke(self._service("ssm"), "get_parameter", {"Name": name})["Parameter"]["Value"])

    def quota(self, service: str, code: str) -> float:
        """Return the account's quota; AWS's default where none was ever applied. Raises CloudError."""
        parameters, quotas = {"ServiceCode": service, "QuotaCode": code}, self._service("service-quotas")
        try:
            answer = invoke(quotas, "get_service_quota", parameters)
        except CloudError as error:
            if error.code != "NoSuchResourceException":
                raise
            answer = invoke(quotas, "get_aws_default_service_quota", parameters)
        return float(answer["Quota"]["Value"])

    def price(self, name: str) -> float | None:
        """Return what AWS's price list says, USD; None where it lists none. Raises CloudError.

        Of an instance type: an hour of Linux on demand; of an EBS volume type, a GiB for a month.
        """
        kind = {**_LISTED, "instanceType": name} if "." in name else {**_LISTED_VOLUME, "volumeApiName": name}
        filters = {**kind, "regionCode": self.region}
        matches = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in filters.items()]
        parameters = {"ServiceCode": "AmazonEC2", "Filters": matches}
        products = invoke(self._service("pricing", _PRICING_REGION), "get_products", parameters)["PriceList"]
        terms = (term for text in products for term in json.loads(text)["terms"].get("OnDemand", {}).values())
        prices = (each["pricePerUnit"].get("USD", 0) for term in terms for each in term["priceDimensions"].values())
        return max(map(float, prices), default=None)

    def clock_offset(self) -> float:
        """Return how many seconds this machine's clock is ahead of AWS's, to the second. Raises CloudError."""
        headers = invoke(self._service("sts"), "get_caller_identity", {})["ResponseMetadata"]["HTTPHeaders"]
        return time.time() - 0.5 - parsedate_to_datetime(headers["date"]).timestamp()

    def caller(self) -> tuple[str, str]:
        """Return account number and caller's ARN, which needs no permission (STS API reference). Raises CloudError."""
        answer = invoke(self._service("sts"), "get_caller_identity", {})
        return str(answer["Account"]), str(answer["Arn"])

    def is_allowed(self, action: str, **parameters: Any) -> bool | None:
        """Ask with DryRun whether a call would be allowed; None when AWS does not say. Raises CloudError."""
        try:
            self.create(action, **parameters, DryRun=True)
        except CloudError as error:
            if error.code == "DryRunOperation":
                return True
            if error.code == "UnauthorizedOperation":
                return False
            if error.code == _UNREACHABLE or error.code in _THROTTLED or error.code in NO_LOGIN:
                raise
        return None

    def pages(self, action: str, key: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the entries of all pages of a Describe call. Raises CloudError."""
        entries: list[dict[str, Any]] = []
        token: dict[str, Any] = {}
        while True:
            answer = self.call(action, **parameters, **token)
            entries.extend(answer.get(key, ()))
            if not answer.get("NextToken"):
                return entries
            token = {"NextToken": answer["NextToken"]}

    def zones_offering(self, types: Sequence[str]) -> dict[str, list[str]]:
        """Return the availability zones, never Local Zones, that offer each instance type. Raises CloudError."""
        usable = {"zone-type": facts("zones")["type"], "state": "available"}
        filters = [{"Name": name, "Values": [value]} for name, value in usable.items()]
        listed = self.call("describe_availability_zones", Filters=filters)["AvailabilityZones"]
        zones = {str(zone["ZoneName"]) for zone in listed}
        offers = self.pages(
            "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": sorted(types)}],
        )  # fmt: skip
        return {
            name: [str(o["Location"]) for o in offers if o["InstanceType"] == name and o["Location"] in zones]
            for name in types
        }

    def call_when_visible(self, action: str, *, creates: bool = False, **parameters: Any) -> dict[str, Any]:
        """Make a call that names a new resource, and repeat it while AWS does not know that. Raises CloudError."""
        problem: CloudError | None = None
        for _ in self.retry.polls(self.retry.visible):
            try:
                return (self.create if creates else self.call)(action, **parameters)
            except CloudError as error:
                # A new image is never among the resources: one that is not found does not exist.
                if not is_missing(error) or error.code.startswith("InvalidAMIID"):
                    raise
                problem = error
        raise problem or AssertionError("polls() yields at least once")


def is_missing(error: CloudError) -> bool:
    """Whether AWS does not know what the call named: not yet, or no longer."""
    return error.code.endswith((".NotFound", ".Unknown", "NotFound"))


def is_unclear(error: CloudError) -> bool:
    """Whether a call may be repeated: it was throttled, or it is not known whether it was carried out."""
    return error.code in _THROTTLED | {_UNREACHABLE, "InternalError", "Unavailable", "ServiceUnavailable"}


def default_region() -> str | None:
    """Return the region of the AWS configuration: AWS_REGION, AWS_DEFAULT_REGION or the profile. Raises CloudError."""
    import botocore.session  # type: ignore[import-untyped]  # noqa: PLC0415 - 0.2 s that only EC2 runs should pay
    from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]  # noqa: PLC0415 - with botocore

    try:
        found = os.environ.get("AWS_REGION") or botocore.session.get_session().get_config_variable("region")
    except BotoCoreError as error:
        raise CloudError("session", "NoCredentials", f"{error}.") from error
    return str(found) if found else None


def may_have_credentials() -> bool:
    """Whether this machine's AWS configuration has credentials, searched for as the AWS CLI does."""
    import botocore.session  # noqa: PLC0415 - 0.2 s that only EC2 runs should pay
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - with botocore

    try:
        session = botocore.session.get_session()
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            session.set_config_variable("metadata_service_timeout", 1)
        return session.get_credentials() is not None
    except BotoCoreError:
        return True  # something is configured and wrong: the first call says what


@functools.cache
def _service_models() -> Any:
    """Return the loader of AWS's service descriptions, shared by all sessions: EC2's takes 0.2 s to read."""
    import botocore.loaders  # type: ignore[import-untyped]  # noqa: PLC0415 - with boto3

    return botocore.loaders.create_loader()


def _session(boto3: Any, region: str, profile: str | None) -> Any:
    import botocore.session  # noqa: PLC0415 - with boto3
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - with boto3

    try:
        inner = botocore.session.get_session()
        inner.register_component("data_loader", _service_models())
        session = boto3.Session(region_name=region, profile_name=profile, botocore_session=inner)
        inner.get_scoped_config()  # fails for an unknown profile in every version of botocore
        partitions = facts("partitions")["owners"]
        known = [name for each in partitions for name in session.get_available_regions("ec2", partition_name=each)]
    except BotoCoreError as error:
        raise CloudError("session", "NoCredentials", f"{error}.") from error
    if region not in known:
        near = difflib.get_close_matches(region, known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise CloudError("session", "UnknownRegion", f"no region is named {region}{hint}")
    return session


def invoke(client: Any, action: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Call a boto3 client; every exception of botocore becomes a CloudError."""
    from botocore import exceptions as botocore  # noqa: PLC0415 - with boto3
    from botocore.parsers import ResponseParserError  # type: ignore[import-untyped]  # noqa: PLC0415 - with boto3

    name = action.title().replace("_", "")
    try:
        answer: dict[str, Any] = getattr(client, action)(**parameters)
    except botocore.ClientError as error:
        details = error.response.get("Error", {})
        raise CloudError(name, str(details.get("Code", "Unknown")), str(details.get("Message", error))) from error
    except (botocore.NoCredentialsError, botocore.PartialCredentialsError, botocore.CredentialRetrievalError) as error:
        raise CloudError(name, "NoCredentials", f"{error}.") from error
    except (botocore.TokenRetrievalError, botocore.SSOError) as error:
        raise CloudError(name, "ExpiredToken", f"{error}.") from error
    except (botocore.HTTPClientError, botocore.EndpointConnectionError, ResponseParserError) as error:
        raise CloudError(name, _UNREACHABLE, f"{error}") from error
    except botocore.BotoCoreError as error:
        raise CloudError(name, type(error).__name__, f"{error}") from error
    return answer
