# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM for unmodified programs: those of rdma-core, and perftest with `-R`."""

import contextlib
import subprocess
import time

import pytest

from tests.labs import eventually
from tests.programs.pair import BEGINS_S, TIMEOUT_S, ended, finished

BYTES, ROUNDS, CONNECTIONS = 4000, 20, 3
PROGRAMS = {
    # server's and client's arguments, and the bytes that the client has sent at least
    "rping": (
        ["-s", "-S", str(BYTES), "-C", str(ROUNDS), "-a"],
        ["-c", "-S", str(BYTES), "-C", str(ROUNDS), "-V", "-a"],
        ROUNDS * BYTES,
    ),
    "ucmatose": (
        ["-c", str(CONNECTIONS), "-C", str(ROUNDS), "-S", str(BYTES), "-b"],
        ["-c", str(CONNECTIONS), "-C", str(ROUNDS), "-S", str(BYTES), "-s"],
        CONNECTIONS * ROUNDS * BYTES,
    ),
    "udaddy": (
        ["-c", str(CONNECTIONS), "-C", str(ROUNDS), "-S", "1000", "-b"],
        ["-c", str(CONNECTIONS), "-C", str(ROUNDS), "-S", "1000", "-s"],
        CONNECTIONS * ROUNDS * 1000,
    ),
    "rdma_server": (["-s"], ["-s"], 16),
}
CLIENTS = {"rdma_server": "rdma_client"}
GIDS = pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])


def converse(pair, program, gid):
    """The program at both hosts; its bytes are seen as RoCE."""
    server, client, payload_bytes = PROGRAMS[program]
    address = str(pair.address("h2", gid))
    with pair.sending("h1", payload_bytes):
        pair.connect([program, *server, address], [CLIENTS.get(program, program), *client, address])


@GIDS
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_runs(pair, program, gid):
    converse(pair, program, gid)


@GIDS
@pytest.mark.parametrize("program", [name for name in PROGRAMS if name != "udaddy"])
def test_it_runs_over_a_lossy_link(pair, program, gid):
    """udaddy waits for ever for a datagram that is lost, on any RNIC."""
    pair.lose("1%")
    converse(pair, program, gid)


@pytest.mark.parametrize("program", ["ib_write_bw", "ib_send_bw"])
def test_perftest_connects_by_rdma_cm(pair, program):
    command = [program, "-F", "-R", "-n", "100"]
    with pair.sending("h1", 100 * 65536):
        pair.connect(command, [*command, str(pair.address("h2"))])


def test_perftest_connects_over_a_lossy_link(pair):
    pair.lose("1%")
    command = ["ib_write_bw", "-F", "-R", "-n", "100"]
    with pair.sending("h1", 100 * 65536):
        pair.connect(command, [*command, str(pair.address("h2"))], timeout_s=2 * TIMEOUT_S)


def kill_midway(pair, server, client, victim):
    """SIGKILL of one side while messages are under way; the other has a second left."""
    goal = pair.roce_packets("h1") + 200
    deadline = time.monotonic() + TIMEOUT_S
    with ended(pair.start("h2", *server)) as listener:
        time.sleep(BEGINS_S)  # `rping` waits for ever where a server took its request too early
        while pair.roce_packets("h1") < goal:
            with ended(pair.start("h1", *client)) as caller:
                while caller.poll() is None and pair.roce_packets("h1") < goal:
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                (caller if victim == "h1" else listener).kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    (listener if victim == "h1" else caller).communicate(timeout=1)


def kill_unnoticed(pair, server, client):
    """SIGKILL of the client while nothing crosses the link: it asks, and nobody answers."""
    pair.lose("100%")
    sent = pair.roce_packets("h1")
    deadline = time.monotonic() + TIMEOUT_S
    with ended(pair.start("h2", *server)), ended(pair.start("h1", *client)) as caller:
        while pair.roce_packets("h1") == sent:
            assert caller.poll() is None, caller.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        caller.kill()
    pair.clear()


def test_after_a_kill_the_same_runs_at_once(pair):
    address = str(pair.address("h2"))
    kill_midway(pair, ["rping", "-s", "-a", address], ["rping", "-c", "-a", address], "h1")
    converse(pair, "rping", 0)


@pytest.mark.full("verbs-acceptance")
@GIDS
def test_each_runs_again_after_a_kill(pair, full, gid):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    address = str(pair.address("h2", gid))
    if full:
        kill_midway(pair, ["rping", "-s", "-a", address], ["rping", "-c", "-a", address], "h2")
        converse(pair, "rping", gid)
    for program in list(PROGRAMS)[1:] if full else ["udaddy"]:
        server, client, _ = PROGRAMS[program]
        kill_unnoticed(
            pair, [program, *server, address], [CLIENTS.get(program, program), *client, address]
        )
        converse(pair, program, gid)
    if gid == 0 and full:
        command = ["ib_write_bw", "-F", "-R", "-n", "100000000"]
        kill_midway(pair, command, [*command, address], "h1")
        test_perftest_connects_by_rdma_cm(pair, "ib_write_bw")


COMES_BACK = """
import ctypes, sys, threading
cm = ctypes.CDLL("librdmacm.so.1")
cm.rdma_create_event_channel.restype = ctypes.c_void_p
channel, event = ctypes.c_void_p(cm.rdma_create_event_channel()), ctypes.c_void_p()
cm.rdma_destroy_event_channel(channel)
asks = threading.Thread(
    target=cm.rdma_get_cm_event, args=(channel, ctypes.byref(event)), daemon=True
)
asks.start()
asks.join(0.5)
sys.exit(0 if asks.is_alive() else "it did not sleep")
"""


def test_a_thread_that_comes_back_to_a_channel_just_destroyed_sleeps(pair):
    """So does rping's second thread, while the first one returns from main."""
    done = pair.run("h1", "/usr/bin/python3", "-c", COMES_BACK)
    assert done.returncode == 0, done.stderr


def test_without_a_listener_the_program_is_told(pair):
    with ended(pair.start("h2", "rping", "-s", "-p", "9000")):
        refused = pair.run("h1", "rping", "-c", "-a", str(pair.address("h2")))
    assert refused.returncode != 0


def test_what_is_absent_is_refused(pair):
    done = pair.run("h1", "mckey", "-m", "239.0.0.1", "-b", str(pair.address("h1")))
    assert done.returncode not in (0, -11)
    assert "not supported" in done.stdout + done.stderr


def test_without_the_lab_there_is_no_device(pair):
    done = pair.run("h1", "rping", "-s", verbs=False)
    assert done.returncode not in (0, -11)


def test_a_program_with_a_clean_environment_runs(pair):
    address = str(pair.address("h2"))
    rping = ["env", "-i", "/usr/bin/rping", "-a", address, "-C", "3"]
    with pair.sending("h1", 3 * 64):
        pair.connect([*rping, "-s"], [*rping, "-c"])


def test_two_programs_of_a_host_listen_at_once(pair):
    """Each gets its own client, whichever of them listened first."""
    address = str(pair.address("h2"))
    other = ["rping", "-a", address, "-p", "7175", "-C", "3"]
    with ended(pair.start("h2", *other, "-s")) as waits:
        converse(pair, "rping", 0)
        assert waits.poll() is None
        done = pair.run("h1", *other, "-c")
        assert done.returncode == 0, done.stderr
        assert finished(waits).returncode == 0


def test_the_peer_of_a_killed_program_is_told(pair):
    """It waits for a message, so nothing else tells it; the killed one was its host's last."""
    address = str(pair.address("h2"))
    sent = pair.roce_packets("h1")
    with ended(pair.start("h2", "rping", "-s", "-a", address)) as server:
        time.sleep(BEGINS_S)
        with ended(pair.start("h1", "rping", "-c", "-a", address)) as client:
            assert eventually(lambda: pair.roce_packets("h1") > sent + 100, TIMEOUT_S)
            client.kill()
        assert "DISCONNECT EVENT" in "".join(server.communicate(timeout=TIMEOUT_S))


def test_a_daemon_keeps_the_connection_manager_of_the_shell_that_left_it(pair):
    pair.run("h2", "sh", "-c", "setsid rping -s -C 3 >/dev/null 2>&1 &")
    done = pair.run("h1", "rping", "-c", "-a", str(pair.address("h2")), "-C", "3")
    assert done.returncode == 0, done.stderr
