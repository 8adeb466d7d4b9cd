# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM where two programs of a host have connections at once."""

import contextlib
import time

import pytest

from tests.labs import eventually
from tests.programs.pair import BEGINS_S, TIMEOUT_S, ended, finished

ROUNDS = 100
PORTS = 7174, 7175


def rping(pair, port, *flags):
    return ["rping", "-a", str(pair.address("h2")), "-p", str(port), *flags]


def results(*processes):
    done = [finished(process) for process in processes]
    assert [each.returncode for each in done] == len(done) * [0], done


@pytest.mark.parametrize("version", [0, 1], ids=["ipv4", "ipv6"])
def test_two_clients_to_two_servers(pair, version):
    address = str(pair.address("h2", version))
    ends = [["rping", "-a", address, "-p", str(port), "-C", str(ROUNDS)] for port in PORTS]
    with contextlib.ExitStack() as stack:
        serving = [stack.enter_context(ended(pair.start("h2", *end, "-s"))) for end in ends]
        time.sleep(2 * BEGINS_S)
        asking = [stack.enter_context(ended(pair.start("h1", *end, "-c", "-V"))) for end in ends]
        results(*asking, *serving)


def test_two_clients_to_one_server(pair):
    """It goes on, until it is killed."""
    client = rping(pair, PORTS[0], "-c", "-V", "-C", str(ROUNDS))
    with ended(pair.start("h2", *rping(pair, PORTS[0], "-s", "-P"))):
        time.sleep(BEGINS_S)
        with ended(pair.start("h1", *client)) as one, ended(pair.start("h1", *client)) as other:
            results(one, other)


@pytest.mark.parametrize("victim", ["client", "server"])
def test_the_kill_of_one_leaves_the_others_connection(pair, victim):
    """The victim's peer is told; the others go on."""
    with contextlib.ExitStack() as stack:

        def start(host, port, *flags):
            return stack.enter_context(ended(pair.start(host, *rping(pair, port, *flags))))

        def await_traffic():
            goal = pair.roce_packets("h1") + 400
            assert eventually(lambda: pair.roce_packets("h1") > goal, TIMEOUT_S)

        serving = [start("h2", port, "-s") for port in PORTS]
        time.sleep(2 * BEGINS_S)
        asking = []
        for port in PORTS:
            asking.append(start("h1", port, "-c"))
            time.sleep(BEGINS_S)
            await_traffic()
        killed, told = (asking, serving) if victim == "client" else (serving, asking)
        killed[0].kill()
        assert "DISCONNECT EVENT" in "".join(told[0].communicate(timeout=TIMEOUT_S))
        await_traffic()
        assert [killed[1].poll(), told[1].poll()] == [None, None]
