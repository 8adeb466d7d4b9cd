# SPDX-License-Identifier: GPL-2.0-or-later
"""One program on Linux's rxe and, unmodified too, on a soft RNIC: `lab exec --verbs` at one end.

The guest is Debian 13, whose perftest is another version than the host's Debian 12.
"""

import itertools
import secrets

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from tests.labs import prepare_verbs
from tests.programs.pair import Pair

SOFT, KERNEL = "h1", "k1"
MESSAGES, BYTES = 100, 4096
GIDS = {SOFT: {4: "0", 6: "1"}, KERNEL: {4: "1", 6: "2"}}  # rxe's first is of its MAC address
LONGEST_S = 120  # an emulated guest beside other work


def pingpong(kind):
    size = 1024 if kind == "ud" else BYTES  # of one packet
    return [f"ibv_{kind}_pingpong", "-n", str(MESSAGES), "-s", str(size), "-g", None], "both", size


def perftest(test, sender, *flags):
    return (
        [f"ib_{test}", "-F", "-n", str(MESSAGES), "-s", str(BYTES), *flags, "-x", None],
        sender,
        BYTES,
    )


PROGRAMS = {
    "ib_write_bw": perftest("write_bw", "client"),
    "ib_read_bw": perftest("read_bw", "server"),
    "ib_send_lat": perftest("send_lat", "both", "-u", "18"),  # an emulated guest may stand still
    "ibv_rc_pingpong": pingpong("rc"),
    "ibv_ud_pingpong": pingpong("ud"),
    "ibv_srq_pingpong": pingpong("srq"),
    "rping": (["rping", "-C", str(MESSAGES), "-S", str(BYTES)], "both", BYTES),
}  # fmt: skip
DIRECTIONS = (SOFT, KERNEL), (KERNEL, SOFT)  # the server, and the client


@pytest.fixture(scope="module")
def lab():
    name = f"t{secrets.token_hex(3)}"
    up = fabric.up(topology.load("kernel-peer", name=name), ephemeral=True)
    try:
        prepare_verbs()
        yield up
    finally:
        up.down()


def converse(lab, name, server, client, version):
    """The program at both; RoCE packets that both have sent carry its bytes."""
    pair = Pair(lab, server, client)
    command, sender, size = PROGRAMS[name]
    address = str(pair.address(server, version == 6))
    serves, asks = ([gid if word is None else word for word in command]
                    for gid in (GIDS[server][version], GIDS[client][version]))  # fmt: skip
    if name == "rping":
        serves, asks = [*serves, "-s", "-a", address], [*asks, "-c", "-V", "-a", address]
    else:
        asks = [*asks, str(pair.address(server))]  # its sockets are of IPv4
    before = {host: pair.roce_packets(host) for host in (server, client)}
    pair.connect(serves, asks, timeout_s=LONGEST_S)
    for host, role in ((server, "server"), (client, "client")):
        if sender in (role, "both"):
            assert pair.roce_packets(host) - before[host] >= MESSAGES * max(1, size // 2048)


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs(lab, full, name):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    ways = list(itertools.product(DIRECTIONS, (4, 6)))
    number = list(PROGRAMS).index(name) % len(ways)
    for direction, version in ways if full else [ways[number]]:
        converse(lab, name, *direction, version)


@pytest.mark.parametrize(("name", "direction"), [("ib_write_bw", 0), ("rping", 1)])
def test_it_runs_over_a_lossy_link(lab, name, direction):
    pair = Pair(lab)
    pair.lose("1%")
    try:
        converse(lab, name, *DIRECTIONS[direction], 4)
    finally:
        pair.clear()
