"""Faults to inject: which call they strike, how often, and what happens."""

import fnmatch
from dataclasses import dataclass
from typing import Literal

from .wire import ApiError, Call

Lost = Literal["", "before", "after"]

# HTTP status of errors that are not 400; EC2 answers missing capacity with 500, which clients retry by themselves.
_STATUS = {
    "InsufficientInstanceCapacity": 500,
    "InternalError": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "UnauthorizedOperation": 403,
    "AuthFailure": 401,
    "RequestExpired": 400,
    "ExpiredToken": 400,
}


@dataclass(slots=True)
class Fault:
    """Something that goes wrong.

    `action` is a name or a pattern (`Delete*`). `times` None means always; the first `skip` calls pass.
    `zone` and `instance_type` narrow it to launches there. `delay` is in seconds, before anything else.
    `lost`: the connection is cut before the call is carried out, or after it and before the answer.
    `alter` changes the launch: stuck_pending, never_attach, iops=N, or no_tags.
    """

    action: str
    code: str = ""
    message: str = "injected by the test"
    times: int | None = 1
    skip: int = 0
    zone: str = ""
    instance_type: str = ""
    market: str = ""
    delay: float = 0.0
    lost: Lost = ""
    alter: str = ""
    struck: int = 0

    def matches(self, call: Call, zone: str) -> bool:
        """Whether it applies to this call."""
        return (
            fnmatch.fnmatchcase(call.action, self.action)
            and (not self.zone or self.zone == zone)
            and (not self.instance_type or self.instance_type == call.get("InstanceType"))
            and (not self.market or self.market == call.get("InstanceMarketOptions.MarketType", "on-demand"))
        )


@dataclass(frozen=True, slots=True)
class Strike:
    """What all faults together do to one call."""

    delay: float = 0.0
    lost: Lost = ""
    error: ApiError | None = None
    alter: tuple[str, ...] = ()


class Faults(list[Fault]):
    """The injected faults."""

    def strike(self, call: Call, zone: str) -> Strike:
        """Return what happens to this call; used-up faults are over."""
        delay, alter, error = 0.0, list[str](), None
        lost: Lost = ""
        for fault in self:
            if not fault.matches(call, zone) or (fault.times is not None and fault.struck >= fault.times):
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.struck += 1
            delay += fault.delay
            lost = lost or fault.lost
            if fault.alter:
                alter.append(fault.alter)
            if fault.code and error is None:
                error = ApiError(fault.code, fault.message, _STATUS.get(fault.code, 400))
        return Strike(delay, lost, error, tuple(alter))
