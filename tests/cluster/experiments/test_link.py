"""A link made by the kernel carries what it is given, no faster than its rate, and leaves nothing behind."""

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from microshard.workloads.base import PhaseError
from microshard.workloads.link import SlowLink
from tests.cluster.experiments.conftest import EXPERIMENTS
from tests.cluster.run.conftest import Cli

BYTES = 3_000_000
RATE = 20.0  # Mbit/s

root = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")


def devices() -> set[str]:
    listed = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0].partition("@")[0] for line in listed.splitlines()}


@pytest.fixture
def counting_server() -> Iterator[tuple[int, list[int]]]:
    """A server that counts what it gets and answers when it has all."""
    counted: list[int] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            total = 0
            while total < BYTES:
                total += len(connection.recv(65536))
            counted.append(total)
            connection.sendall(b"!")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], counted
        thread.join(10)


@root
@pytest.mark.skipif(SlowLink("tbf", 0, RATE).why_not() is not None, reason="this kernel has no tbf")
def test_bytes_go_through_a_namespace_no_faster_than_its_rate(counting_server: tuple[int, list[int]]) -> None:
    port, counted = counting_server
    before = devices()
    link = SlowLink("tbf", 0, RATE)
    try:
        entrance = link.start("127.0.0.1", port)
        assert len(devices() - before) == 1
        with socket.create_connection(("127.0.0.1", entrance)) as client:
            began = time.monotonic()
            client.sendall(bytes(BYTES))
            assert client.recv(1) == b"!"
            seconds = time.monotonic() - began
        assert counted == [BYTES]
        # The bucket lets its first bytes pass at once.
        assert seconds > (BYTES - 200_000) * 8 / (RATE * 1e6) * 0.9
        assert link.carried() == {"up": BYTES, "down": 1}
    finally:
        link.close()
    deadline = time.monotonic() + 60
    while devices() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert devices() == before


@root
def test_the_kernel_takes_the_link_away_when_its_process_is_killed() -> None:
    before = devices()
    link = SlowLink("tbf", 0, RATE)
    if link.why_not():
        pytest.skip("this kernel has no tbf")
    with socket.create_server(("127.0.0.1", 0)) as server:
        link.start("127.0.0.1", server.getsockname()[1])
        for relay in link.relays:
            relay.process.kill()
            relay.process.wait()
    deadline = time.monotonic() + 60
    while devices() != before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert devices() == before
    link.close()


def test_words_of_tc() -> None:
    assert SlowLink("netem", 10, 20).discipline() == ["netem", "delay", "10ms", "limit", "100000", "rate", "20mbit"]
    assert SlowLink("netem", 0.5, None).discipline() == ["netem", "delay", "0.5ms", "limit", "100000"]
    assert SlowLink("tbf", 0, 1000).discipline()[:5] == ["tbf", "rate", "1000mbit", "burst", "500000"]


def test_a_kernel_or_a_user_without_it_gets_the_reason(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "need root" in (SlowLink("netem", 10, None).why_not() or "")
    with pytest.raises(PhaseError, match="need root"):
        SlowLink("netem", 10, None).start("127.0.0.1", 1)
    monkeypatch.undo()
    if SlowLink("netem", 10, None).why_not() is None:
        pytest.skip("this kernel has netem")
    words = ["--set", "matrix={}", "--set", 'workload.0.measure.link={"kind": "netem", "delay_ms": 10}']
    code, output = cli.run("run", EXPERIMENTS / "wire-compression.yml", "--scale", "laptop", *words)
    assert code == 4, output
    assert "link netem: " in output
    assert not cli.runs.exists()
