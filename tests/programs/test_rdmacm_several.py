# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA CM where two programs of a host have connections at once, or a host has two devices."""

import contextlib
import time

import pytest

from tests.labs import eventually
from tests.programs.pair import BEGINS_S, TIMEOUT_S, Pair, ended, finished

ROUNDS = 100
PORTS = 7174, 7175


def rping(pair, port, *flags):
    return ["rping", "-a", str(pair.address("h2")), "-p", str(port), *flags]


def roce_sent(pair):
    """RoCE packets that h1 has sent, by rail."""
    counted = pair.lab.xdp.counters()
    far = {near.ifindex: far.ifindex for _, near, far in pair.lab.plan.halves}
    return [counted[far[port.ifindex]].rx_roce for port in pair.lab.plan.node("h1").ports]


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


def test_two_programs_of_one_host_connect_to_each_other(pair):
    with_itself = Pair(pair.lab, "h2", "h2")
    with_itself.connect(*(rping(pair, PORTS[0], flag, "-C", str(ROUNDS)) for flag in ("-s", "-c")))


@pytest.mark.parametrize("victim", ["client", "server"])
def test_the_kill_of_one_leaves_the_others_connection(pair, victim):
    """The victim's peer is told; the others go on."""
    with contextlib.ExitStack() as stack:

        def start(host, port, *flags):
            return stack.enter_context(ended(pair.start(host, *rping(pair, port, *flags))))

        def await_traffic():
            goal = roce_sent(pair)[0] + 400
            assert eventually(lambda: roce_sent(pair)[0] > goal, TIMEOUT_S)

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


@pytest.mark.parametrize("version", [0, 1], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("rail", [0, 1])
def test_the_servers_address_chooses_the_device_of_both_ends(rails, rail, version):
    port = rails.lab.plan.node("h2").ports[rail]
    words = ["rping", "-a", str(port.address6 if version else port.address), "-C", str(ROUNDS)]
    before = roce_sent(rails)
    rails.connect([*words, "-s"], [*words, "-c"])
    after = roce_sent(rails)
    grown = [now - then for now, then in zip(after, before, strict=True)]
    assert grown[rail] > ROUNDS
    assert grown[1 - rail] == 0


def test_a_server_at_every_address_serves_each_rail(rails):
    with ended(rails.start("h2", "rping", "-s", "-P")):
        time.sleep(BEGINS_S)
        for port in rails.lab.plan.node("h2").ports:
            client = ["rping", "-c", "-a", str(port.address), "-C", str(ROUNDS)]
            done = rails.run("h1", *client)
            assert done.returncode == 0, done.stderr


DEVICES = """
import ctypes
cm, count = ctypes.CDLL("librdmacm.so.1"), ctypes.c_int()
assert cm.rdma_get_devices(ctypes.byref(count))
print(count.value)
"""


def test_all_devices_are_listed(rails):
    assert rails.run("h1", "/usr/bin/python3", "-c", DEVICES).stdout == "2\n"
