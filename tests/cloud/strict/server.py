"""The simulated EC2 as a web server on loopback, in front of moto."""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from moto.core import responses
from moto.core.request import Request
from moto.ec2.responses import EC2Response
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from . import actions
from .account import Account, Machines, Timing, hide_created, refuse_hidden, without_hidden
from .faults import Fault, Faults
from .rules import check_deletion, check_launch, zone_of
from .wire import Answer, ApiError, Call, error, json_answer

# moto lists the methods of a service anew for each call, a fifth of what a call costs.
vars(responses)["method_names_from_class"] = functools.cache(vars(responses)["method_names_from_class"])

StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class _Handler(WSGIRequestHandler):
    def date_time_string(self, timestamp: float | None = None) -> str:
        """The header Date, by AWS's clock."""
        return super().date_time_string((timestamp or time.time()) + getattr(self.server.app, "clock", 0.0))


@dataclass(slots=True)
class Simulation:
    """A strict EC2 with one account. `url` is its endpoint once it is started."""

    timing: Timing = field(default_factory=Timing)
    quota: int | None = None  # vCPUs
    applied_quotas: bool = True  # without, there are AWS's defaults alone
    policy: set[str] | None = None  # permissions the caller has; None is all
    dry_runs_validate: bool = False  # DryRun looks at RunInstances' parameters too; AWS does not document whether
    clock: float = 0.0  # seconds its clock is ahead of this machine's
    prices: dict[str, float] = field(default_factory=dict)  # USD an hour, by instance type; of the price list
    machines: Machines = field(default_factory=Machines)
    faults: Faults = field(default_factory=Faults)
    calls: list[Call] = field(default_factory=list)  # as they came in, the refused ones too
    permissions: set[str] = field(default_factory=set)  # every permission a call has needed
    url: str = ""
    account: Account = field(init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _server: BaseWSGIServer | None = None

    def __post_init__(self) -> None:
        self.account = Account(self.timing, self.machines)

    @contextlib.contextmanager
    def serving(self, port: int = 0, listening: socket.socket | None = None) -> Iterator[Simulation]:
        """Serve on loopback, or on a socket that listens already, while the context is open."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        fd = None if listening is None else listening.fileno()
        port = port if listening is None else int(listening.getsockname()[1])
        self._server = make_server("127.0.0.1", port, self, threaded=True, fd=fd, request_handler=_Handler)
        self.url = f"http://127.0.0.1:{port or self._server.server_port}"
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()
            self.account.reset()

    def reset(self) -> None:
        """An empty account without faults, delays, quota or policy."""
        with self._lock:
            self.faults.clear()
            self.calls.clear()
            self.permissions.clear()
            self.quota = self.policy = None
            self.dry_runs_validate, self.clock, self.prices = False, 0.0, {}
            self.applied_quotas = True
            self.timing.now = time.monotonic
            self.timing.pending = self.timing.terminating = self.timing.consistency = 0.0
            self.account.reset()

    def inject(self, fault: Fault) -> Fault:
        """Add a fault."""
        self.faults.append(fault)
        return fault

    def everything(self) -> dict[str, list[str]]:
        """Return what exists in the account beside AWS's default resources, by kind."""
        with self._lock:
            for region in self.account.regions.values():
                region.advance()
            return self.account.everything()

    def end_instance(self, name: str, reason: str = "Server.SpotInstanceTermination") -> None:
        """End an instance from outside: a spot interruption, or a colleague."""
        with self._lock:
            for region in self.account.regions.values():
                if name in region.instances():
                    region.terminate(region.instances()[name], reason)

    def actions(self) -> list[str]:
        """Names of the calls so far."""
        return [call.action for call in self.calls]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """WSGI."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        answer = self._answer(environ, body)
        if answer is None:
            # The caller's connection breaks: neither status nor body.
            with contextlib.suppress(OSError):
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            answer = Answer(b"", 500)
        start_response(
            f"{answer.status} -", [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body)))]
        )
        return [answer.body]

    def _answer(self, environ: dict[str, Any], body: bytes) -> Answer | None:
        call = _parse(environ, body)
        with self._lock:
            self.calls.append(call)
            call.index = len(self.calls)
        try:
            with self._lock:
                region = self.account.region(call.region)
                strike = self.faults.strike(call, zone_of(call, region))
            if strike.delay:
                time.sleep(strike.delay)
            if strike.lost == "before":
                return None
            if strike.error:
                raise strike.error
            call.alter = strike.alter
            with self._lock:
                self._authorise(call)
                region.advance()
                answer = self._carry_out(call, body, environ)
        except ApiError as problem:
            if call.service in actions.JSON:
                return json_answer({"__type": problem.code, "message": problem.message}, problem.status)
            return error(problem)
        return None if strike.lost == "after" else answer

    def _authorise(self, call: Call) -> None:
        if call.service == "sts":
            return  # GetCallerIdentity is everybody's
        needed = [f"{call.service}:{call.action}"]
        if any(name.startswith("TagSpecification.") for name in call.parameters) and call.action != "CreateTags":
            needed.append("ec2:CreateTags")  # tagging at creation is a permission of its own
        self.permissions.update(needed)
        if self.policy is not None and not self.policy.issuperset(needed):
            code = "AccessDeniedException" if call.service in actions.JSON else "UnauthorizedOperation"
            raise ApiError(code, "You are not authorized to perform this operation.", 403)
        if call.get("DryRun") == "true":
            if self.dry_runs_validate and call.action == "RunInstances":
                check_launch(call, self.account.region(call.region), None)
            raise ApiError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)

    def _carry_out(self, call: Call, body: bytes, environ: dict[str, Any]) -> Answer:
        region = self.account.region(call.region)
        if call.service == "ssm":
            return actions.ssm(call, region, body)
        if call.service == "servicequotas":
            return actions.service_quota(call, body, self.quota, applied=self.applied_quotas)
        if call.service == "pricing":
            return actions.products(call, body, self.prices)
        if call.service == "sts":
            return actions.identity()
        refuse_hidden(call, region)
        if call.action in actions.ANSWERED_HERE:
            return actions.answer(call, region)
        check_deletion(call, region)

        def forward(changed: Call) -> Answer:
            return _moto(changed, environ)

        launch = call.action == "RunInstances"
        answer = actions.run_instances(call, region, self.quota, forward) if launch else forward(call)
        hide_created(call, answer, region)
        return without_hidden(answer, region) if call.action.startswith("Describe") else answer


def _parse(environ: dict[str, Any], body: bytes) -> Call:
    authorization = environ.get("HTTP_AUTHORIZATION", "")
    scope = authorization.partition("Credential=")[2].partition(",")[0].split("/")
    region, service = (scope[2], scope[3]) if len(scope) > 3 else ("us-east-1", "ec2")
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        return Call(service, region, target.rpartition(".")[2])
    parameters = dict(parse_qsl(body.decode(), keep_blank_values=True))
    return Call(service, region, parameters.pop("Action", ""), parameters)


def _moto(call: Call, environ: dict[str, Any]) -> Answer:
    headers = {
        "Host": f"ec2.{call.region}.amazonaws.com",  # moto takes the region from here
        "Authorization": environ.get("HTTP_AUTHORIZATION", ""),
        "Content-Type": "application/x-www-form-urlencoded; charset=utf-8",
    }
    url = f"http://ec2.{call.region}.amazonaws.com/"
    body = urlencode({"Action": call.action, **call.parameters}).encode()
    request = Request.from_primitives("POST", url, headers, body)
    status, answered, content = EC2Response.dispatch(request, url, headers)
    kind = answered.get("Content-Type") or answered.get("content-type") or "text/xml;charset=UTF-8"
    return Answer(content.encode() if isinstance(content, str) else content, int(status), kind)
