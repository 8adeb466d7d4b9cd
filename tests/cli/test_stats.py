# SPDX-License-Identifier: GPL-2.0-or-later
import contextlib
import http.client
import ipaddress
import json
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from prometheus_client.openmetrics import parser

from softroce_lab import topology
from softroce_lab.cli.observe.stats import _rows
from softroce_lab.cli.observe.stats_server import Handler, Server, loopback
from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric.observe.stats import Stats
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.telemetry import counters
from softroce_lab.telemetry.counters_file import Published, Snapshot
from tests.labs import prepare_verbs

PATIENCE_S = 30.0


class Talk:
    """A lab whose hosts talk, and what `lab stats` says of it."""

    def __init__(self, lab, process):
        self.lab = lab
        self.process = process

    def stats(self, *arguments):
        return self.lab.json("stats", self.lab.name, *arguments)

    def words(self, *arguments):
        result = self.lab.run("stats", self.lab.name, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout

    def await_traffic(self):
        """Both RNICs, once each has published that it sent something."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = {rnic["port"]: rnic for rnic in self.stats()["rnics"]}
            if len(found) == 2 and all(r["hw_counters"]["sent_pkts"] for r in found.values()):
                return found
            time.sleep(0.1)
        raise TimeoutError("no traffic")


@contextlib.contextmanager
def bounded(process):
    """A process that takes too long is killed; whoever reads what it says meets its end."""
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def await_line(process, wanted):
    """The first line that `wanted` likes."""
    with bounded(process):
        for line in process.stdout:
            if wanted(line):
                return line
    raise EOFError(process.stderr.read())


@pytest.fixture
def talk(lab):
    assert lab.up().returncode == 0
    command = [sys.executable, "-m", "tests.cli.quiet_talk", lab.name]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE) as process:
        try:
            with bounded(process):
                assert process.stdout.readline() == b"ready\n"
            yield Talk(lab, process)
        finally:
            process.kill()


def test_a_process_that_lives_and_one_that_was_killed(talk):
    found = talk.await_traffic()
    near, far = found["h1:eth1"], found["h2:eth1"]
    assert near["alive"]
    assert near["pid"] == far["pid"] == talk.process.pid
    (qp,) = near["qps"]
    assert (qp["type"], qp["state"], qp["remote_address"]) == ("RC", "RTS", "10.0.0.2")
    assert far["hw_counters"]["rx_write_requests"] > 0
    (flow,) = talk.lab.json("trace", "h1", "h2", "--live", "--lab", talk.lab.name)["flows"]
    assert flow["sport"] == 0xC000 | qp["qp"] & 0x3FFF
    assert flow["queue_pairs"] == [f"RC queue pair {qp['qp']}"]
    assert near["hw_counters"]["rx_write_requests"] == 0

    everything = talk.stats()
    ports = {port["port"]: port["counters"] for port in everything["ports"]}
    assert set(ports) == {"h1:eth1", "h2:eth1", "s1:p1", "s1:p2"}
    assert ports["s1:p1"]["port_rcv_packets"] >= near["hw_counters"]["sent_pkts"]
    octets = 4 * ports["s1:p1"]["port_rcv_data"]
    assert octets / ports["s1:p1"]["port_rcv_packets"] > 1000  # 2 KiB or an acknowledgement
    hosts = {host["host"]: host["counters"] for host in everything["hosts"]}
    assert set(hosts) == {"h1", "h2"}
    assert hosts["h2"]["rx_write_requests"] >= far["hw_counters"]["rx_write_requests"]

    one = talk.stats("h1->*")
    assert [link["link"] for link in one["links"]] == ["h1->s1"]
    assert one["ports"] == one["rnics"] == []
    assert {rnic["port"] for rnic in talk.stats("h1:eth1")["rnics"]} == {"h1:eth1"}

    lines = talk.words("h1").splitlines()
    assert any(line.split()[:2] == ["h1:eth1", "port_xmit_data"] for line in lines)
    assert any(line.split()[:4] == ["h1:eth1", "qp", str(qp["qp"]), "tx_connected"]
               for line in lines)  # fmt: skip
    assert not any(line.split()[-1] == "0" for line in lines)
    assert "np_cnp_sent" not in talk.words("h1")
    assert "np_cnp_sent" in talk.words("h1", "--all")

    families = {f.name: f for f in parser.text_string_to_metric_families(
        talk.words("--openmetrics"))}  # fmt: skip
    assert families["softroce_port_xmit_data"].type == "counter"
    (sample,) = [s for s in families["softroce_qp_rx_write_requests"].samples
                 if s.labels["host"] == "h2"]  # fmt: skip
    assert sample.labels["lab"] == talk.lab.name
    assert sample.value > 0
    assert {s.value for s in families["softroce_rnic_up"].samples} == {1}

    talk.process.kill()
    talk.process.wait()
    result = talk.lab.run("stats", talk.lab.name, "h1")
    assert "was killed" in result.stderr
    assert "sent_pkts" not in result.stdout
    (last,) = talk.stats("h1")["rnics"]
    assert not last["alive"]
    assert last["hw_counters"]["sent_pkts"] >= near["hw_counters"]["sent_pkts"]
    # Whoever opens the port next takes its place, and leaves none.
    prepare_verbs()
    words = ("perf", "write_bw", "h1", "h2", "--lab", talk.lab.name, "--", "-n", "10")
    opened = talk.lab.run(*words)
    assert opened.returncode == 0
    assert talk.stats()["rnics"] == []


def test_again_and_again(talk):
    arguments = ("stats", talk.lab.name, "h2", "--watch", "--interval", "100ms")
    with talk.lab.start(*arguments, "--json") as watch:
        with bounded(watch):
            first, second = (json.loads(watch.stdout.readline()) for _ in range(2))
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)
    assert watch.returncode == 130
    assert first["monotonic_ns"] < second["monotonic_ns"]
    with talk.lab.start(*arguments) as watch:
        for name in ("port_rcv_data", "sent_pkts"):  # of the port, and of the RNIC at it
            await_line(watch, re.compile(rf"h2:eth1 +{name} .*/s$").match)
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)
    assert watch.returncode == 130


def sample(seconds, frames):
    """A port and the RNIC at it."""
    counts = dict.fromkeys(counters.NEEDED, frames)
    rnic = Snapshot(0, 1, 0, counts, ())
    ports = {"h1:eth1": {"port_xmit_packets": frames}}
    time_ns = int(seconds * 1e9)
    plan = topology.load("two-hosts")
    return Stats(plan, time_ns, ports, {}, [Published("h1:eth1", rnic, True)], {}, ())


def test_rates_are_of_a_port_and_of_the_rnic_at_it():
    rows = _rows(sample(3, 500), sample(1, 100), everything=False)
    rates = {name: rate for _, name, _, rate in rows}
    assert rates["port_xmit_packets"] == rates["tx_connected"] == 200
    before = _rows(sample(3, 500), None, everything=False)
    assert {rate for *_, rate in before} == {None}


def test_prometheus_scrapes(lab):
    assert lab.up().returncode == 0
    with lab.start("stats", lab.name, "--listen", "127.0.0.1:0") as server:
        with bounded(server):
            url = server.stderr.readline().split()[-1]
        where, slash, path = url.removeprefix("http://").partition("/")
        client = http.client.HTTPConnection(where, timeout=PATIENCE_S)
        accept = {"Accept": "application/openmetrics-text;version=1.0.0"}
        client.request("GET", slash + path, headers=accept)
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
        text = answer.read().decode()
        names = {family.name for family in parser.text_string_to_metric_families(text)}
        assert {"softroce_link_frames", "softroce_port_rcv_packets"} <= names
        taken = lab.run("stats", lab.name, "--listen", where)
        assert taken.returncode == 1
        assert "cannot listen" in taken.stderr
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode == 130


@pytest.fixture
def server(monkeypatch):
    """Without a lab: what is asked for is never there."""
    monkeypatch.setattr(Handler, "timeout", PATIENCE_S)
    with Server(ipaddress.ip_address("127.0.0.1"), 0, None) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(PATIENCE_S)


def idle_client(server):
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    client.connect()
    client.sock.sendall(b"GET")
    return client


def status(server):
    """Of an answer; None if the server turned the client away."""
    client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    with contextlib.closing(client), contextlib.suppress(http.client.HTTPException, OSError):
        client.request("GET", "/")
        return client.getresponse().status
    return None


def test_a_refusal_is_plain_text(server):
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    ) as client:
        client.request("GET", "/nothing")
        answer = client.getresponse()
        assert answer.status == 404
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.read() == b"404 Not Found: there is /metrics\n"


def test_a_lab_that_is_gone_is_no_error_of_the_endpoint():
    class Gone:
        def collect(self):
            raise RunError("the lab nv went down")

    with Server(ipaddress.ip_address("127.0.0.1"), 0, Gone()) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
        with contextlib.closing(client):
            client.request("GET", "/metrics")
            answer = client.getresponse()
            assert answer.status == 503
            assert b"the lab nv went down" in answer.read()
        server.shutdown()
        thread.join(PATIENCE_S)


def test_so_many_clients_at_once_and_no_more(server):
    assert status(server) == 404
    deadline = time.monotonic() + PATIENCE_S
    while server._room._value < 8:  # its thread lives on for a moment
        assert time.monotonic() < deadline
        time.sleep(0.01)
    silent = [idle_client(server) for _ in range(8)]
    assert status(server) is None
    for client in silent:
        client.close()
    deadline = time.monotonic() + PATIENCE_S
    while status(server) != 404:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("0.0.0.0:9100", "loopback"),
        ("192.0.2.1:9100", "loopback"),
        ("[::]:9100", "loopback"),
        (":9100", "no IP address"),
        ("example.org:9100", "no IP address"),
        ("127.0.0.1", "no address and port"),
        ("127.0.0.1:x", "no address and port"),
        ("127.0.0.1:65536", "no address and port"),
    ],
)
def test_no_address_but_loopback(where, complaint):
    with pytest.raises(UserError, match=complaint):
        loopback(where)


@pytest.mark.parametrize("where", ["127.0.0.1:0", "localhost:9100", "[::1]:9100", "127.9.9.9:1"])
def test_addresses_of_loopback(where):
    address, port = loopback(where)
    assert address.is_loopback
    assert port == int(where.rpartition(":")[2])


def test_what_makes_no_sense(lab):
    assert lab.up().returncode == 0
    for arguments, complaint in (
        (("--watch", "--interval", "1ms"), "50ms at least"),
        (("--interval", "1s"), "hint: --watch"),
        (("--json", "--openmetrics"), "choose one"),
        (("--watch", "--openmetrics"), "choose one"),
        (("h9",), "no node h9"),
        (("h1:eth9",), "no port"),
        (("h1->h2",), "no link joins"),
    ):
        result = lab.run("stats", lab.name, *arguments)
        assert result.returncode == 2, arguments
        assert complaint in result.stderr
    assert lab.run("stats", "--lab", "nosuchlab").returncode == 2
