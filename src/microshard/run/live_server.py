"""Serves the page of a run that goes on, and its numbers for Prometheus: loopback only, the page behind a token."""

import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from microshard.errors import PlaceError, RunFolderError
from microshard.records.codec import encode
from microshard.report.html import live_page
from microshard.run.live import LiveRun, Watch, prometheus

LOOPBACK = "127.0.0.1"
FRESH_SECONDS = 0.5  # several windows and Prometheus together read the files of a run twice a second at most
_HEADERS = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff"}
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-src 'self'; "
    "img-src data:"
)


class LiveServer:
    """The HTTP servers of `microshard watch`; `close` ends them."""

    def __init__(self, watch: Watch, port: int = 0, prometheus_port: int | None = None) -> None:
        """Listen. Raises PlaceError when a port is taken."""
        self.watch = watch
        self.token = secrets.token_urlsafe(16)
        self._lock = threading.Lock()
        self._seen = float("-inf")
        self._latest: LiveRun | None = None
        page = live_page()
        root = f"/{self.token}/"
        pages: dict[str, Callable[[], tuple[str, str]]] = {
            root: lambda: ("text/html; charset=utf-8", page),
            f"{root}state": lambda: ("application/json", json.dumps(encode(self.look()))),
            f"{root}report": lambda: (
                "text/html; charset=utf-8", (watch.run / "report" / "report.html").read_text(encoding="utf-8")
            ),
        }  # fmt: skip
        metrics = {"/metrics": lambda: ("text/plain; version=0.0.4; charset=utf-8", prometheus(self.look()))}
        self._servers = [_listen(port, pages)]
        if prometheus_port is not None:
            try:
                self._servers.append(_listen(prometheus_port, metrics))
            except PlaceError:
                self.close()
                raise
        self.url = f"http://{LOOPBACK}:{self._servers[0].server_address[1]}{root}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds the numbers; empty without --prometheus."""
        return f"http://{LOOPBACK}:{self._servers[1].server_address[1]}/metrics" if len(self._servers) > 1 else ""

    def look(self) -> LiveRun:
        """The run now, or as it was a moment ago. Raises RunFolderError, OSError."""
        with self._lock:
            if self._latest is None or time.monotonic() - self._seen > FRESH_SECONDS:
                self._latest = self.watch.look()
                self._seen = time.monotonic()
            return self._latest

    def close(self) -> None:
        """Listen no longer."""
        for server in self._servers:
            server.shutdown()
            server.server_close()


def _listen(port: int, pages: dict[str, Callable[[], tuple[str, str]]]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            make = pages.get(self.path.partition("?")[0])
            if make is None:
                self.send_error(404)
                return
            try:
                kind, text = make()
            except (OSError, RunFolderError) as error:
                self.send_error(503, explain=str(error))  # a file that is being replaced: the page asks again
                return
            body = text.encode()
            self.send_response(200)
            policy = {} if self.path.endswith("/report") else {"Content-Security-Policy": _POLICY}
            for name, value in {**_HEADERS, **policy, "Content-Type": kind, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """A window asks once a second: nothing of it is printed."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except OSError as error:
        raise PlaceError(f"port {port} of {LOOPBACK} cannot be listened on: {error.strerror}") from error
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
