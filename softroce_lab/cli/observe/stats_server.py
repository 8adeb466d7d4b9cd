# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab stats --listen`: an endpoint for Prometheus, on the loopback interface and nowhere else."""

from __future__ import annotations

import http.server
import ipaddress
import socket
import threading
from http import HTTPStatus
from typing import Any

import typer

from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.fabric.observe import stats
from softroce_lab.fabric.observe.stats import Collector
from softroce_lab.telemetry.openmetrics import CONTENT_TYPE

PATH = "/metrics"
_MOST_CLIENTS = 8  # at once; others are turned away
_PATIENCE_S = 5.0  # with a client that says nothing or takes nothing


def serve(collector: Collector, where: str) -> None:
    """Answer until interrupted. UserError unless `where` is of the loopback interface."""
    address, port = loopback(where)
    with Server(address, port, collector) as server:
        host = f"[{address}]" if address.version == 6 else str(address)
        typer.echo(f"lab: http://{host}:{server.server_port}{PATH}", err=True)
        server.serve_forever(poll_interval=0.2)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def loopback(where: str) -> tuple[Address, int]:
    """The address and the port, such as 127.0.0.1:9100 or [::1]:9100. UserError."""
    host, colon, port = where.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"{where!r} is no address and port", hint="such as 127.0.0.1:9100")
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise UserError(f"{host!r} is no IP address", hint="such as 127.0.0.1:9100") from None
    if not address.is_loopback:
        raise UserError(
            f"{host} is not on the loopback interface: whoever reaches it could read the counters",
            hint="127.0.0.1, and ssh -L to look from elsewhere",
        )
    return address, int(port)


class Server(http.server.ThreadingHTTPServer):
    """Bounded in clients and in its patience with each."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _MOST_CLIENTS

    def __init__(self, address: Address, port: int, collector: Collector) -> None:
        """RunError if the port is taken."""
        self.address_family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        self.collector = collector
        self.reading = threading.Lock()
        self._room = threading.BoundedSemaphore(_MOST_CLIENTS)
        try:
            super().__init__((str(address), port), Handler)
        except OSError as error:
            raise RunError(f"cannot listen on {address}:{port}: {error.strerror}") from error

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread, if there is room for one more."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """What the thread does."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class Handler(http.server.BaseHTTPRequestHandler):
    """GET /metrics, and nothing else."""

    server: Server
    server_version = "softroce_lab"
    sys_version = ""
    error_message_format = "%(code)d %(message)s: %(explain)s\n"
    error_content_type = "text/plain; charset=utf-8"
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        """The counters now."""
        if self.path != PATH:
            return self.send_error(HTTPStatus.NOT_FOUND, explain=f"there is {PATH}")
        try:
            with self.server.reading:
                text = stats.openmetrics(self.server.collector.collect())
        except (LabError, OSError) as error:
            return self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, explain=str(error))
        data = text.encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        return None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Say nothing of each scrape."""
