"""What EC2 refuses, in words for people."""

from __future__ import annotations

from collections.abc import Sequence

from microshard.errors import EXIT_PLACE, MicroshardError

# Missing capacity: another zone, type or market may have it. "Unsupported" is a type that is not offered in a zone.
CAPACITY = frozenset(
    {
        "InsufficientInstanceCapacity",
        "InsufficientHostCapacity",
        "InsufficientReservedInstanceCapacity",
        "InsufficientCapacity",
        "UnfulfillableCapacity",
        "Unsupported",
        "Server.InsufficientInstanceCapacity",
    }
)
# Missing on the spot market only: on-demand capacity has quotas of its own.
SPOT_CAPACITY = CAPACITY | {"MaxSpotInstanceCountExceeded", "SpotMaxPriceTooLow", "Server.SpotInstanceTermination"}
THROTTLED = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "RequestThrottled", "EC2ThrottledException"}
)
# AWS does not take the caller for somebody it knows: nothing else will work either.
NO_LOGIN = frozenset(
    {
        "NoCredentials",
        "AuthFailure",
        "InvalidClientTokenId",
        "UnrecognizedClientException",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "ExpiredTokenException",
        "RequestExpired",
    }
)
UNREACHABLE = "Unreachable"

_ADVICE = {
    "NoCredentials": "Give credentials as for the AWS CLI: AWS_PROFILE, an SSO login, or an access key.",
    "AuthFailure": "The access key is unknown or disabled, or the region is not enabled for this account.",
    "InvalidClientTokenId": "The access key is unknown or disabled.",
    "UnrecognizedClientException": "The access key is unknown or disabled.",
    "SignatureDoesNotMatch": "The secret key does not fit the access key.",
    "ExpiredToken": "The session has expired: log in again.",
    "ExpiredTokenException": "The session has expired: log in again.",
    "RequestExpired": "The session has expired, or this machine's clock is wrong.",
    "UnauthorizedOperation": "The policy lacks this action; docs/ec2.md has the least one that suffices.",
    "AccessDeniedException": "The policy lacks this action; docs/ec2.md has the least one that suffices.",
    "VcpuLimitExceeded": "Ask for a higher quota of running instances (Service Quotas), or use smaller or fewer hosts.",
    "InstanceLimitExceeded": "Ask for a higher quota of running instances (Service Quotas), or use fewer hosts.",
    "MaxSpotInstanceCountExceeded": "Ask for a higher quota of spot instances, or use market on_demand.",
    "VolumeLimitExceeded": "Ask for a higher EBS quota, or use smaller volumes.",
    "VpcLimitExceeded": "Name a VPC or a subnet of your own, or delete VPCs nobody needs.",
    "InvalidAMIID.NotFound": "An image belongs to one region: better name a distribution (al2023, debian-12).",
    UNREACHABLE: "The network, or a wrong region or endpoint.",
}  # fmt: skip


class CloudError(MicroshardError):
    """A call to AWS failed; `code` is AWS's own name of the error."""

    exit_code = EXIT_PLACE

    def __init__(self, action: str, code: str, message: str) -> None:
        advice = _ADVICE.get(code, "")
        super().__init__(f"{action}: {code}: {message}" + (f" {advice}" if advice else ""))
        self.action = action
        self.code = code
        self.message = message


class CapacityError(CloudError):
    """No zone, type or market that was allowed has room. `attempts` says what was tried."""

    def __init__(self, group: str, code: str, attempts: Sequence[str]) -> None:
        super().__init__("RunInstances", code, f"no capacity for {group}; tried {'; '.join(attempts)}.")
        self.group = group
        self.attempts = tuple(attempts)


class LaunchError(CloudError):
    """Instances or volumes did not become what was asked for."""
