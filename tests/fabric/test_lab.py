# SPDX-License-Identifier: GPL-2.0-or-later
import contextlib
import dataclasses
import hashlib
import itertools
import os
import socket
import subprocess
import threading
import traceback

import pytest

from softroce_lab import topology
from softroce_lab.errors import EnvironmentLackError, LabError, UserError
from softroce_lab.fabric import lab, probe, runtime
from softroce_lab.fabric.ledger.ledger import LabBusyError
from softroce_lab.fabric.net import netns


@pytest.fixture
def running(two_hosts):
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(lab.up(two_hosts))


def steps_of_up(plan):
    """How many steps bringing it up takes."""
    count = []
    lab.up(plan, on_step=lambda: count.append(1)).down()
    return len(count)


def test_a_plan_without_routes_is_refused(two_hosts, traces):
    with pytest.raises(UserError, match="was resolved without routes"):
        lab.up(dataclasses.replace(two_hosts, routes=()))
    assert traces.gone(), traces.found()


def test_what_fails_at_any_step_is_undone(two_hosts, traces, foreigner):
    """An error between any two acts; sampled, for SIGKILL is tried at all of them."""
    steps = steps_of_up(two_hosts)
    for step in range(0, steps, 3):
        count = itertools.count()

        def fail(step=step, count=count):
            if next(count) == step:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            lab.up(two_hosts, on_step=fail)
        assert traces.gone(), traces.found()
    assert foreigner.is_intact()


def test_a_dead_link_is_named_and_nothing_stays(two_hosts, traces, monkeypatch):
    """The probe's frames carry another lab's number, so no program answers."""
    monkeypatch.setattr(probe, "_ROUND_S", 0.02)
    frame = probe.frame
    monkeypatch.setattr(probe, "frame", lambda port, peer, token: frame(port, peer, token ^ 1))
    with pytest.raises(LabError, match=r"h1:eth1 - s1:p1, h2:eth1 - s1:p2"):
        lab.up(two_hosts)
    assert traces.gone(), traces.found()


def test_an_interrupt_is_heard_between_acts_and_undone(two_hosts, traces):
    interrupted = []

    def interrupt():
        if not interrupted and traces.directory.joinpath("bpf").exists():
            interrupted.append(True)
            os.kill(os.getpid(), 2)

    with pytest.raises(KeyboardInterrupt):
        lab.up(two_hosts, on_step=interrupt)
    assert traces.gone(), traces.found()


@pytest.fixture
def interrupted_when_up(monkeypatch):
    """The signal comes behind the last act, when nothing looks for it any more."""
    realise = lab.Lab._realise

    def and_then(*arguments):
        realise(*arguments)
        os.kill(os.getpid(), 2)

    monkeypatch.setattr(lab.Lab, "_realise", and_then)


def test_an_owned_lab_is_gone_whenever_the_interrupt_comes(two_hosts, traces, interrupted_when_up):
    with pytest.raises(KeyboardInterrupt), lab.owned(two_hosts):
        pytest.fail("the interrupt was not heard")
    assert traces.gone(), traces.found()


def test_an_interrupt_waits_until_down_is_done(two_hosts, traces):
    lab.up(two_hosts).close()
    with pytest.raises(KeyboardInterrupt):
        runtime.down(two_hosts.name, print, on_step=lambda: os.kill(os.getpid(), 2))
    assert traces.gone(), traces.found()


def test_a_lab_comes_up_once(running, two_hosts):
    with pytest.raises(UserError, match="is being used by another process"):
        lab.up(two_hosts)
    running.close()
    with pytest.raises(UserError, match="is up already"):
        lab.up(two_hosts)
    assert runtime.examine(two_hosts.name).word == "up"


def test_a_taken_name_changes_nothing(two_hosts, traces):
    name = two_hosts.node("h2").namespace
    fd, file = netns.create(), netns.unlinked_name()
    stranger = netns.identify(fd, file)
    netns.publish(name, fd, file)
    with pytest.raises(UserError, match=f"{name} exists already"):
        lab.up(two_hosts)
    assert not traces.directory.exists()
    survivor = netns.opened(name, stranger)
    assert survivor is not None
    for each in (fd, file, survivor):
        os.close(each)
    netns.remove(name, stranger)


def test_who_holds_a_lab_keeps_others_off(running, two_hosts):
    with pytest.raises(LabBusyError):
        runtime.down(two_hosts.name, print)
    with pytest.raises(LabBusyError):
        lab.Lab.open(two_hosts.name)
    running.close()
    with lab.Lab.open(two_hosts.name) as again:
        assert again.plan == two_hosts
        assert again.mode in ("native", "generic")


def test_a_damaged_lab_is_not_opened_but_goes_down(running, two_hosts, traces):
    running.close()
    name = two_hosts.node("h1").namespace
    subprocess.run(["ip", "netns", "delete", name], check=True)
    with pytest.raises(LabError, match=f"{name} of the lab .* is gone"):
        lab.Lab.open(two_hosts.name)
    runtime.down(two_hosts.name, print)
    assert traces.gone(), traces.found()


def test_strangers_inside_are_named_and_lose_their_links(running, two_hosts, traces):
    with running.enter("s1"):
        stranger = subprocess.Popen(["sleep", "60"])
    fd = os.open(f"/proc/{stranger.pid}/ns/net", os.O_RDONLY)
    traces.remember_bpf_objects()
    output = []
    running.down(output.append)
    assert [f"sleep ({stranger.pid})" in line for line in output] == [True]
    with netns.entered(fd), open("/proc/thread-self/net/dev") as devices:
        assert "p1:" not in devices.read()
    assert stranger.poll() is None
    assert traces.gone(), traces.found()
    stranger.kill()
    stranger.wait()
    os.close(fd)


def test_without_rights_it_says_what_is_missing(two_hosts, traces, nobody):
    pid = os.fork()
    if pid == 0:
        os.setresuid(nobody, nobody, nobody)
        try:
            lab.up(two_hosts)
        except EnvironmentLackError as error:
            os._exit(42 if "root" in str(error) else 1)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    assert not traces.directory.exists()


@pytest.fixture(params=["native", "generic"])
def leaf_spine(request, lab_name, traces):
    with lab.up(topology.load("leaf-spine", name=lab_name), mode=request.param) as made:
        yield made


def test_tcp_crosses_the_fabric(leaf_spine):
    """16 MiB, both directions of acknowledgement, segmentation and checksums in software."""
    payload = os.urandom(1 << 20) * 16
    with leaf_spine.enter("h4"):
        server = socket.create_server((leaf_spine.plan.node("h4").address, 7))
    with leaf_spine.enter("h1"):
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.settimeout(20)
    server.settimeout(20)
    client.connect(server.getsockname())

    def send():
        client.sendall(payload)
        client.close()

    sender = threading.Thread(target=send)
    sender.start()
    digest = hashlib.sha256()
    connection, _ = server.accept()
    with server, connection:
        connection.settimeout(20)
        while chunk := connection.recv(1 << 16):
            digest.update(chunk)
    sender.join()
    assert digest.digest() == hashlib.sha256(payload).digest()
