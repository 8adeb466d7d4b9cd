# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs a program at both hosts of a lab, and counts the RoCE packets that it sent.

The switch's XDP programs count what is UDP to port 4791 apart from everything else: a program that
silently falls back to TCP would not be seen there.
"""

import contextlib
import socket
import subprocess
import sys
import time

from softroce_lab.errors import RunError
from softroce_lab.fabric.net.listening import listens
from softroce_lab.fabric.observe import traffic, view
from softroce_lab.paths import PROJECT_ROOT

TIMEOUT_S = 30
LISTENS_S = 20
BEGINS_S = 1.5  # of a program: Python's start, and the library's
UNACKNOWLEDGED = "transport retry counter exceeded", "Failed status 12:", "Request Flushed"
"""As ibv_wc_status_str has it, and as perftest does; libfabric is told that its peer has gone."""
MTU_BYTES = 2048
TCP_PORT = 18515  # of perftest and the pingpongs


class Pair:
    """Two hosts. Programs at a kernel host are the guest's, on its own RNIC."""

    def __init__(self, lab, server="h2", client="h1"):
        self.lab, self.server, self.client = lab, server, client

    @property
    def name(self):
        return self.lab.plan.name

    def address(self, host, gid=0):
        port = self.lab.plan.node(host).ports[0]
        return port.address6 if gid else port.address

    def start(self, host, *command, verbs=True, flag="--verbs", **options):
        own = host in [each.name for each in self.lab.plan.kernel_hosts]  # Linux's
        flags = [flag] if verbs and not own else []
        argv = [sys.executable, "-m", "softroce_lab.cli", "exec", "--lab", self.name, *flags]
        return subprocess.Popen(
            [*argv, host, "--", *command], cwd=PROJECT_ROOT, text=True,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options,
        )  # fmt: skip

    def run(self, host, *command, **options):
        with ended(self.start(host, *command, **options)) as process:
            return finished(process)

    def converse(self, *command, timeout_s=TIMEOUT_S, port=TCP_PORT, tries=1):
        """A program as server and as client; returns both results.

        They listen and connect by IPv4, whatever the GID: a server of these programs binds the
        first address that getaddrinfo has. With more `tries`, the last acknowledgement may be lost
        once its sender has ended: so ends one run in a hundred over a link that loses 1 %, on any
        RNIC.
        """
        while True:
            tries -= 1
            results = self._converse(command, timeout_s, port)
            if not tries or all(result.returncode == 0 for result in results):
                break
            printed = "".join(result.stdout + result.stderr for result in results)
            assert any(words in printed for words in UNACKNOWLEDGED), results
        for result in results:
            assert result.returncode == 0, result.stdout + result.stderr
        return results

    def _converse(self, command, timeout_s, port):
        with ended(self.start(self.server, *command)) as server:
            self.await_listener(server, port)
            with ended(self.start(self.client, *command, self.address(self.server))) as client:
                return finished(server, timeout_s), finished(client, timeout_s)

    def connect(self, server, client, *, timeout_s=TIMEOUT_S):
        """Two programs, the first is the server; returns both results.

        A server listens some time after it began: until then its host refuses, or nobody is there.
        The first client waits: one of several connections has some refused in that moment and
        takes the others back, at which `ucmatose` as a server ends.
        """
        with ended(self.start(self.server, *server)) as listener:
            time.sleep(BEGINS_S)
            deadline = time.monotonic() + LISTENS_S
            while True:
                assert listener.poll() is None, listener.communicate()
                with ended(self.start(self.client, *client)) as process:
                    result = finished(process, timeout_s)
                if result.returncode == 0 or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            assert result.returncode == 0, (client, result.stdout + result.stderr)
            results = finished(listener, timeout_s), result
        for each in results:
            assert each.returncode == 0, (server, client, each.stdout + each.stderr)
        return results

    def await_listener(self, server, port=TCP_PORT, host="h2"):
        """Until something listens at the TCP port of the host."""
        deadline = time.monotonic() + LISTENS_S
        while not self._listens(host, port):
            assert server.poll() is None, server.communicate()
            assert time.monotonic() < deadline, "nothing listens"
            time.sleep(0.02)

    def _listens(self, host, port):
        with self.lab.enter(host):
            return listens(port)

    def interfaces(self, host):
        with self.lab.enter(host):
            return {name for _, name in socket.if_nameindex()}

    def roce_packets(self, host, rail=0):
        """How many RoCE packets left one of the host's ports since the lab came up."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with traffic.metering(view.of_lab(self.name)) as meter:
                    return meter.sample().ports[self._gateway(host, rail)].rx_roce
            except RunError:  # beside programs that poll, the wire stage may be late
                if time.monotonic() > deadline:
                    raise

    def _gateway(self, host, rail=0):
        ifindex = self.lab.plan.node(host).ports[rail].ifindex
        return next(far.ifindex for _, near, far in self.lab.plan.halves if near.ifindex == ifindex)

    @contextlib.contextmanager
    def sending(self, host, payload_bytes):
        """What runs inside sends that much from this host, by RoCE."""
        before = self.roce_packets(host)
        yield
        sent = self.roce_packets(host) - before
        assert sent * MTU_BYTES >= payload_bytes

    def lose(self, share):
        """Set this share of loss on the host's link, both ways."""
        self.fault("set", "h1<->s1", "loss", share)

    def shape(self, rate, limit):
        """Give the hosts' links a rate and a queue, both ways."""
        self.fault("set", "*<->*", "rate", rate, "limit", limit)

    def clear(self):
        self.fault("clear")

    def fault(self, *arguments):
        """`lab fault` with these words."""
        argv = [sys.executable, "-m", "softroce_lab.cli", "fault", *arguments, "--lab", self.name]
        subprocess.run(argv, cwd=PROJECT_ROOT, check=True, capture_output=True, timeout=TIMEOUT_S)


@contextlib.contextmanager
def ended(process):
    """On leaving, the process has ended."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)


def finished(process, timeout_s=TIMEOUT_S):
    out, errors = process.communicate(timeout=timeout_s)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def gid_text(address):
    """As ibv_devinfo writes it."""
    return f"::ffff:{address}" if "." in address else socket.inet_ntop(
        socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address)
    )  # fmt: skip
