# SPDX-License-Identifier: GPL-2.0-or-later
"""Several processes on a host's port, several devices, and what programs hear of a port's link."""

import contextlib
import errno
import os
import pwd
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.fabric.net import netns, programs
from softroce_lab.fabric.observe import stats, view
from softroce_lab.programs.device import beside
from softroce_lab.structs import Struct
from softroce_lab.telemetry import counters_file
from tests.labs import eventually
from tests.programs.pair import TIMEOUT_S, ended, finished

REQUEST, GRANT = Struct("ports::Request"), Struct("ports::Grant")
SHARES = 64
HEARS_S = 0.1
MOMENTS, FULL_MOMENTS = 3, 50
PATIENT = "18"  # timeouts of 1 s: on a busy machine, all eight of the default 67 ms may pass


def write_bw(pair, *ports, seconds=2, to="h2", at="h1", forever=False):
    """A server and its client for each of these TCP ports: pairs of both.

    All clients begin once all servers listen.
    """
    more = ["-u", PATIENT, "-D", str(seconds), *(["--run_infinitely"] if forever else [])]

    def words(port):
        return ["ib_write_bw", "-F", "-x", "0", "-p", str(port), *more]

    servers = [pair.start(to, *words(port)) for port in ports]
    for port, server in zip(ports, servers, strict=True):
        pair.await_listener(server, port, to)
    return [
        (server, pair.start(at, *words(port), pair.address(to)))
        for port, server in zip(ports, servers, strict=True)
    ]


def test_two_programs_at_once(pair):
    with contextlib.ExitStack() as stack:
        several = write_bw(pair, 18601, 18602, seconds=4)
        processes = [stack.enter_context(ended(each)) for both in several for each in both]
        clients = sorted(client.pid for _, client in several)
        assert eventually(
            lambda: sorted(each.snapshot.pid for each in published(pair, "h1")) == clients
        )
        numbers = {qp.number for each in published(pair, "h1") for qp in each.snapshot.qps}
        assert {number >> 17 for number in numbers} == {0, 1}
        assert pair.interfaces("h1") >= {"eth1p1", "eth1f1"}
        for process in processes:
            done = finished(process)
            assert done.returncode == 0, done.stdout + done.stderr
    assert eventually(lambda: pair.interfaces("h1") == {"lo", "eth1"})


def test_two_users_of_one_host_at_once(pair):
    """The service hands what root alone may open to whoever root lets into the host."""
    users = {18621: "nobody", 18622: "daemon"}
    pingpong = ["ibv_rc_pingpong", "-g", "0", "-c", "-n", "2000", "-p"]  # -c: checks the bytes
    with contextlib.ExitStack() as stack:

        def started(host, port, *words):
            become = ["setpriv", "--reuid", users[port], "--regid", "daemon", "--clear-groups"]
            process = pair.start(host, *become, *pingpong, str(port), *words)
            return stack.enter_context(ended(process))

        servers = [started("h1", port) for port in users]
        for port, server in zip(users, servers, strict=True):
            pair.await_listener(server, port, "h1")
        pids = sorted(server.pid for server in servers)
        assert sorted(each.snapshot.pid for each in published(pair, "h1")) == pids
        uids = {Path(f"/proc/{pid}").stat().st_uid for pid in pids}
        assert uids == {pwd.getpwnam(name).pw_uid for name in users.values()}
        clients = [started("h2", port, str(pair.address("h1"))) for port in users]
        for process in (*servers, *clients):
            done = finished(process)
            assert done.returncode == 0, done.stdout + done.stderr
    assert eventually(lambda: pair.interfaces("h1") == {"lo", "eth1"})
    assert eventually(lambda: not stats_files(pair, "h1"))


def stats_files(pair, host):
    """Where processes publish their counters, and those that were killed did."""
    return list((pair.lab.directory / counters_file.DIRECTORY).glob(f"{host}:*"))


def published(pair, host):
    """By the processes that have the host's port and send."""
    seen = view.of_lab(pair.name)
    with stats.collecting(seen, [host]) as collector:
        return [each for each in collector.collect().published if each.alive]


def test_two_programs_of_one_host_talk_without_its_link(pair):
    """So no fault of a link meets what they say."""
    pair.lose("100%")
    before = pair.roce_packets("h1")
    [both] = write_bw(pair, 18603, seconds=1, to="h1")
    for process in map(finished, both):
        assert process.returncode == 0, process.stdout + process.stderr
    assert pair.roce_packets("h1") == before


@pytest.mark.full("killed-beside-others")
def test_who_is_killed_harms_nobody_and_leaves_nothing(pair, full):
    """50 moments: the first, the second or the third of three clients."""
    for moment in range(FULL_MOMENTS if full else MOMENTS):
        with contextlib.ExitStack() as stack:
            several = write_bw(pair, 18610, 18611, 18612, seconds=1)
            for both in several:
                for each in both:
                    stack.enter_context(ended(each))
            time.sleep(0.2 + 0.8 * moment / FULL_MOMENTS)
            server, client = several.pop(moment % 3)
            client.kill()
            server.kill()
            for both in several:
                for process in both:
                    done = finished(process)
                    assert done.returncode == 0, f"moment {moment}: {done.stdout}{done.stderr}"
        for host in ("h1", "h2"):
            assert eventually(lambda host=host: pair.interfaces(host) == {"lo", "eth1"})


def test_programs_go_on_without_the_service_and_the_next_one_leaves_them_their_shares(pair):
    with contextlib.ExitStack() as stack:
        several = write_bw(pair, 18605, 18606, forever=True)
        processes = [stack.enter_context(ended(each)) for both in several for each in both]
        assert eventually(lambda: len(published(pair, "h1")) == 2)
        os.kill(service_of(pair, "h1"), signal.SIGKILL)
        [third] = write_bw(pair, 18607)
        for process in third:
            stack.enter_context(ended(process))
        assert eventually(lambda: "eth1p2" in pair.interfaces("h1"))
        for process in third:
            done = finished(process)
            assert done.returncode == 0, done.stdout + done.stderr
        sent = frames_sent(pair, "h1")
        assert len(sent) == 2
        assert eventually(lambda: all(frames_sent(pair, "h1")[pid] > sent[pid] for pid in sent))
        assert [process.poll() for process in processes] == [None] * 4


def frames_sent(pair, host):
    """By process."""
    return {each.snapshot.pid: each.snapshot.counts["frames_sent"]
            for each in published(pair, host)}  # fmt: skip


def service_of(pair, host):
    """The process that serves the host's ports."""
    with pair.lab.enter(host):
        namespace = Path("/proc/thread-self/ns/net").stat().st_ino
    inhabitants = netns.inhabitants([namespace])[namespace]
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in inhabitants}
    (service,) = [pid for pid, name in names.items() if name == programs.SERVICE]
    return service


# ---------------------------------------------------------------- the service


@pytest.fixture
def asking(pair):
    """Asks the service of h1 for a share, as a program's library does; the grants stay."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended(pair.start("h1", "sleep", "60")))

        def ask(message):
            with pair.lab.enter("h1"):
                client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            stack.enter_context(client)
            client.settimeout(TIMEOUT_S)

            def connected():
                with contextlib.suppress(ConnectionRefusedError, BlockingIOError):
                    client.connect(f"\0{beside.ADDRESSES[1]}")
                    return True

            assert eventually(connected)
            client.send(message)
            return client

        yield ask


def granted(client):
    return GRANT.unpack(client.recv(GRANT.size))


def test_a_port_has_64_shares_and_each_is_given_again(pair, asking):
    request = REQUEST.pack(interface=b"eth1", share=1)
    clients = [asking(request) for _ in range(SHARES)]
    grants = [granted(client) for client in clients]
    assert [grant.share for grant in grants] == list(range(SHARES))
    assert len({grant.interface for grant in grants}) == SHARES
    refused = granted(asking(request))
    assert refused.error == errno.EBUSY
    assert b"64 processes have the port eth1" in refused.problem
    clients[7].close()
    assert eventually(lambda: "eth1p7" not in pair.interfaces("h1"))
    assert granted(asking(request)).share == 7
    for client in clients:
        client.close()
    assert eventually(lambda: pair.interfaces("h1") == {"lo", "eth1", "eth1p7", "eth1f7"})


def test_who_asks_for_no_port_or_makes_no_sense_is_refused_and_harms_nobody(asking):
    strange = granted(asking(REQUEST.pack(interface=b"eth9", share=1)))
    assert strange.error == errno.ENODEV
    assert b"no port eth9" in strange.problem
    assert asking(b"?").recv(1) == b""
    twice = asking(REQUEST.pack(interface=b"eth1", share=1))
    assert granted(twice).share == 0
    twice.send(REQUEST.pack(interface=b"eth1", share=1))
    assert twice.recv(1) == b""
    assert granted(asking(REQUEST.pack(interface=b"eth1", share=1))).share == 0


# ---------------------------------------------------------------- links and devices


@pytest.fixture(scope="module")
def port_events(tmp_path_factory):
    made = tmp_path_factory.mktemp("port_events") / "port_events"
    source = Path(__file__).with_name("port_events.c")
    subprocess.run(["cc", "-Wall", "-Werror", source, "-o", made, paths.verbs_library()],
                   check=True, timeout=TIMEOUT_S)  # fmt: skip
    return made


def heard(process):
    """The next line, and how long it took."""
    begun_s = time.monotonic()
    return process.stdout.readline().strip(), time.monotonic() - begun_s


def fault(pair, *, up):
    pair.fault(*(["clear", "h1<->s1"] if up else ["set", "h1<->s1", "down"]))


def ip_link(pair, *, up):
    """At the other end of the cable."""
    with pair.lab.enter("s1"):
        interface = pair.lab.plan.node("s1").ports[0].name
        words = ["ip", "link", "set", interface, "up" if up else "down"]
        subprocess.run(words, check=True, timeout=TIMEOUT_S)


@pytest.mark.parametrize("change", [fault, ip_link])
def test_a_program_hears_that_its_link_goes_down_and_comes_up(pair, port_events, change):
    with ended(pair.start("h1", port_events, "softroce0")) as process:
        assert heard(process)[0] == "active before"
        assert heard(process)[0] == "active with a queue pair"
        change(pair, up=False)
        line, took_s = heard(process)
        assert line == "port error of port 1: down"
        assert took_s < HEARS_S
        change(pair, up=True)
        assert heard(process)[0] == "port active of port 1: active"


def test_a_link_that_is_down_is_so_from_the_beginning(pair, port_events):
    fault(pair, up=False)
    with ended(pair.start("h1", port_events, "softroce0")) as process:
        assert heard(process)[0] == "down before"
        assert heard(process)[0] == "down with a queue pair"


def test_a_host_has_a_device_for_each_rail(rails):
    listed = rails.run("h1", "ibv_devices").stdout
    assert re.findall(r"softroce\d", listed) == ["softroce0", "softroce1"]
    for device in ("softroce0", "softroce1"):
        rails.converse("ib_write_bw", "-F", "-d", device, "-x", "0", "-n", "100")


def test_a_link_that_goes_down_concerns_its_own_device(rails, port_events):
    with contextlib.ExitStack() as stack:
        both = [
            stack.enter_context(ended(rails.start("h1", port_events, f"softroce{rail}")))
            for rail in range(2)
        ]
        for process in both:
            assert heard(process)[0] == "active before"
            assert heard(process)[0] == "active with a queue pair"
        rails.fault("set", "h1:eth2", "down")
        assert heard(both[1])[0] == "port error of port 1: down"
        rails.fault("clear")
        assert heard(both[1])[0] == "port active of port 1: active"
        rails.fault("set", "h1:eth1", "down")
        assert heard(both[0])[0] == "port error of port 1: down"
        rails.fault("clear")
