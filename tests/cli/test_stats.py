# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab inspect stats`: counters of a lab whose hosts talk, as text, JSON and OpenMetrics."""

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
from softroce_lab.cli.inspect.stats import _rows
from softroce_lab.cli.inspect.stats_server import Handler, Server, loopback
from softroce_lab.errors import RunError, UserError
from softroce_lab.fabric.observe.stats import Stats
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.telemetry import counters
from softroce_lab.telemetry.counters_file import Published, Snapshot
from tests.labs import prepare_verbs

PATIENCE_S = 30.0


@contextlib.contextmanager
def bounded(process):
    """A process that takes too long is killed; whoever reads what it says meets its end."""
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.fixture
def talking(up):
    """A process whose RNICs at h1 and h2 talk, until it is killed."""
    command = [sys.executable, "-m", "tests.cli.quiet_talk", up.name]
    with subprocess.Popen(command, cwd=PROJECT_ROOT, stdout=subprocess.PIPE) as process:
        try:
            with bounded(process):
                assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


def stats(lab, *arguments):
    return lab.json("inspect", "stats", lab.name, *arguments)


def printed(lab, *arguments):
    result = lab.run("inspect", "stats", lab.name, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def rnics_that_sent(lab):
    """Both, once each has published that it sent something."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = {rnic["port"]: rnic for rnic in stats(lab)["rnics"]}
        if len(found) == 2 and all(r["hw_counters"]["sent_pkts"] for r in found.values()):
            return found
        time.sleep(0.1)
    raise TimeoutError("no traffic")


def test_a_process_that_lives_and_one_that_was_killed(up, talking):
    found = rnics_that_sent(up)
    near, far = found["h1:eth1"], found["h2:eth1"]
    assert near["alive"]
    assert near["pid"] == far["pid"] == talking.pid
    (qp,) = near["qps"]
    assert (qp["type"], qp["state"], qp["remote_address"]) == ("RC", "RTS", "10.0.0.2")
    assert far["hw_counters"]["rx_write_requests"] > 0 == near["hw_counters"]["rx_write_requests"]
    (flow,) = up.inspect("path", "h1", "h2", "--sport", "live")["flows"]
    assert flow["sport"] == 0xC000 | qp["qp"] & 0x3FFF
    assert flow["queue_pairs"] == [f"RC queue pair {qp['qp']}"]

    everything = stats(up)
    ports = {port["port"]: port["counters"] for port in everything["ports"]}
    assert set(ports) == {"h1:eth1", "h2:eth1", "s1:p1", "s1:p2"}
    assert ports["s1:p1"]["port_rcv_packets"] >= near["hw_counters"]["sent_pkts"]
    octets = 4 * ports["s1:p1"]["port_rcv_data"]
    assert octets / ports["s1:p1"]["port_rcv_packets"] > 1000  # 2 KiB or an acknowledgement
    hosts = {host["host"]: host["counters"] for host in everything["hosts"]}
    assert set(hosts) == {"h1", "h2"}
    assert hosts["h2"]["rx_write_requests"] >= far["hw_counters"]["rx_write_requests"]
    one = stats(up, "h1->*")
    assert [link["link"] for link in one["links"]] == ["h1->s1"]
    assert one["ports"] == one["rnics"] == []
    assert {rnic["port"] for rnic in stats(up, "h1:eth1")["rnics"]} == {"h1:eth1"}

    lines = [line.split() for line in printed(up, "h1").splitlines()]
    assert any(line[:2] == ["h1:eth1", "port_xmit_data"] for line in lines)
    assert any(line[:4] == ["h1:eth1", "qp", str(qp["qp"]), "tx_connected"] for line in lines)
    assert not any(line[-1] == "0" for line in lines)
    assert "np_cnp_sent" not in printed(up, "h1")
    assert "np_cnp_sent" in printed(up, "h1", "--all")

    text = printed(up, "--openmetrics")
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["softroce_port_xmit_data"].type == "counter"
    (sample,) = [s for s in families["softroce_qp_rx_write_requests"].samples
                 if s.labels["host"] == "h2"]  # fmt: skip
    assert sample.labels["lab"] == up.name
    assert sample.value > 0
    assert {s.value for s in families["softroce_rnic_up"].samples} == {1}

    talking.kill()
    talking.wait()
    result = up.run("inspect", "stats", up.name, "h1")
    assert "was killed" in result.stderr
    assert "sent_pkts" not in result.stdout
    (last,) = stats(up, "h1")["rnics"]
    assert not last["alive"]
    assert last["hw_counters"]["sent_pkts"] >= near["hw_counters"]["sent_pkts"]
    # Whoever opens the port next takes its place, and leaves none.
    prepare_verbs()
    line = ("perf", "write_bw", "h1", "h2", "--lab", up.name, "--", "-n", "10")
    assert up.run(*line).returncode == 0
    assert stats(up)["rnics"] == []


def test_again_and_again(up, talking):
    arguments = ("inspect", "stats", up.name, "h2", "--interval", "100ms")
    with up.start(*arguments, "--json") as watch:
        with bounded(watch):
            first, second = (json.loads(watch.stdout.readline()) for _ in range(2))
        watch.send_signal(signal.SIGINT)
        watch.communicate(timeout=30)
    assert watch.returncode == 130
    assert first["monotonic_ns"] < second["monotonic_ns"]
    with up.start(*arguments) as watch:
        for name in ("port_rcv_data", "sent_pkts"):  # of the port, and of the RNIC at it
            with bounded(watch):
                wanted = re.compile(rf"h2:eth1( process \d+)? +{name} .*/s$")
                assert any(wanted.match(line) for line in watch.stdout), watch.stderr.read()
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


def test_what_makes_no_sense(up):
    for arguments, complaint in (
        (("--interval", "1ms"), "50ms at least"),
        (("--json", "--openmetrics"), "choose one"),
        (("--interval", "1s", "--openmetrics"), "choose one"),
        (("h9",), "no node h9"),
        (("h1:eth9",), "no port"),
        (("h1->h2",), "no link joins"),
        (("--lab", "nosuchlab"), "name the lab once"),
    ):
        assert complaint in up.refused("inspect", "stats", up.name, *arguments), arguments


# --- The endpoint --------------------------------------------------------------------------------


def test_prometheus_scrapes(up):
    with up.start("inspect", "stats", up.name, "--listen", "127.0.0.1:0") as server:
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
        taken = up.run("inspect", "stats", up.name, "--listen", where)
        assert (taken.returncode, "cannot listen" in taken.stderr) == (1, True)
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert server.returncode == 130


class Gone:
    """A lab that is not there any more."""

    def collect(self):
        raise RunError("the lab nv went down")


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(Handler, "timeout", PATIENCE_S)
    with Server(ipaddress.ip_address("127.0.0.1"), 0, Gone()) as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join(PATIENCE_S)


def connection(server):
    port = server.server_port
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))


def asked(server, path):
    """Status, type and text of an answer; None if the server turned the client away."""
    with connection(server) as client, contextlib.suppress(http.client.HTTPException, OSError):
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    return None


def test_refusals_are_plain_text(server):
    status, kind, text = asked(server, "/nothing")
    assert (status, text) == (404, b"404 Not Found: there is /metrics\n")
    assert kind.startswith("text/plain")
    status, _, text = asked(server, "/metrics")
    assert (status, b"the lab nv went down" in text) == (503, True)


def test_so_many_clients_at_once_and_no_more(server):
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            client = stack.enter_context(connection(server))
            client.connect()
            client.sock.sendall(b"GET")
        assert asked(server, "/") is None
    deadline = time.monotonic() + PATIENCE_S
    while asked(server, "/") is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("0.0.0.0:9100", "loopback"),
        ("192.0.2.1:9100", "loopback"),
        ("[::]:9100", "loopback"),
        ("example.org:9100", "no IP address"),
        ("127.0.0.1", "no address and port"),
        ("127.0.0.1:65536", "no address and port"),
        ("127.0.0.1:0", None),
        ("localhost:9100", None),
        ("[::1]:9100", None),
    ],
)
def test_addresses_of_loopback_alone(where, complaint):
    if complaint is not None:
        with pytest.raises(UserError, match=complaint):
            loopback(where)
        return
    address, port = loopback(where)
    assert address.is_loopback
    assert port == int(where.rpartition(":")[2])
