# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect stats --listen`: an endpoint for Prometheus, on the loopback interface only.

prometheus_client serves the requests. This module adds the bounds that it lacks: one path, few
clients at a time, and a short timeout for each.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler

from prometheus_client.core import Metric
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app
from prometheus_client.registry import Collector as Registry

from softroce_lab.cli.options import say
from softroce_lab.errors import LabError, RunError, UserError
from softroce_lab.fabric.observe.openmetrics import Metrics
from softroce_lab.fabric.observe.stats import Collector

PATH = "/metrics"
_MOST_CLIENTS = 8  # at a time; others are refused
_PATIENCE_S = 5.0  # with a client that neither sends nor receives

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve(collector: Collector, where: str) -> None:
    """Serve until interrupted. UserError unless `where` is of the loopback interface."""
    address, port = loopback(where)
    with Server(address, port, collector) as server:
        host = f"[{address}]" if address.version == 6 else str(address)
        say(f"http://{host}:{server.server_port}{PATH}")
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


class Counters(Registry):
    """The counters at the moment of a request; one request at a time reads them."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self._reading = threading.Lock()

    def collect(self) -> Iterable[Metric]:
        """LabError, OSError."""
        with self._reading:
            return Metrics(self._collector.collect()).collect()


def application(registry: Registry) -> Application:
    """The library's, at one path; a lab that cannot be read is no error of the server's."""
    answer = make_wsgi_app(registry)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != PATH:
            return _refusal(start, HTTPStatus.NOT_FOUND, f"there is {PATH}")
        try:
            return answer(environ, start)
        except (LabError, OSError) as error:
            return _refusal(start, HTTPStatus.SERVICE_UNAVAILABLE, str(error))

    return app


def _refusal(start: Callable[..., Any], status: HTTPStatus, why: str) -> Iterable[bytes]:
    start(f"{status.value} {status.phrase}", [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{status.value} {status.phrase}: {why}\n".encode()]


class Handler(WSGIRequestHandler):
    """One client."""

    timeout = _PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """No line for each scrape."""


class Server(ThreadingWSGIServer):
    """Bounded in clients."""

    block_on_close = False
    request_queue_size = _MOST_CLIENTS

    def __init__(self, address: Address, port: int, collector: Collector) -> None:
        """RunError if the port is taken."""
        self.address_family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
        self._room = threading.BoundedSemaphore(_MOST_CLIENTS)
        try:
            super().__init__((str(address), port), Handler)
        except OSError as error:
            raise RunError(f"cannot listen on {address}:{port}: {error.strerror}") from error
        self.set_app(application(Counters(collector)))

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
