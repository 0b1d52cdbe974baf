"""Headless Chromium over its debugging pipe: JSON messages on two file descriptors, nothing listens on a port."""

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers, where the sandbox cannot be made
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
RETRY_POLICY = 90.0  # seconds for one answer; a loaded machine starts a browser slowly


def executable() -> str | None:
    """Path of Chromium or Chrome, if there is one."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


class Browser:
    """One browser with one tab. Collects requests, console messages and exceptions since the last `open`."""

    def __init__(self, program: str, profile: Path) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4; high copies keep the originals out of their way.
        source, target = (fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (there_read, there_write))
        self.pid = os.posix_spawn(
            program,
            [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"],
            {**os.environ, "HOME": str(profile)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, 3),
                (os.POSIX_SPAWN_DUP2, target, 4),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            ],
            setpgroup=0,
        )
        for fd in (there_read, there_write, source, target):
            os.close(fd)
        self._read, self._write = here_read, here_write
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target_id = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target_id, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its result. Raises RuntimeError when the browser refuses it."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], RETRY_POLICY)
            if not ready:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._read, 1 << 20)
            if not chunk:
                raise ConnectionError("the browser has ended")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, page: Path | str, width: int, dark: bool = False, height: int = 900) -> None:
        """Show a file or an address at a window width in CSS pixels, and wait until it is loaded."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = "dark" if dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def js(self, source: str) -> Any:
        """Value of an expression in the page. Raises RuntimeError with the exception's text."""
        result = self.call("Runtime.evaluate", expression=source, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses the page requested, the file itself and data: addresses included."""
        sent = [event for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def complaints(self) -> list[str]:
        """Errors and warnings in the console, and uncaught exceptions."""
        return [
            json.dumps(event["params"])[:500]
            for event in self.events
            if event["method"] in {"Runtime.exceptionThrown", "Log.entryAdded"}
            or (event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in {"error", "warning"})
        ]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """The page as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=False)["data"])

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def close(self) -> None:
        """End the browser and all it started: its own process group, nothing else."""
        self._session = None
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):
            self.call("Browser.close")
        for fd in (self._write, self._read):
            os.close(fd)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            done, _ = os.waitpid(self.pid, os.WNOHANG)
            if done:
                break
            time.sleep(0.05)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for the time of a `with`; its profile lies below `profile`."""
    program = executable()
    if program is None:
        raise FileNotFoundError("chromium is not installed")
    window = Browser(program, profile)
    try:
        yield window
    finally:
        window.close()
