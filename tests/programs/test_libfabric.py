# SPDX-License-Identifier: GPL-2.0-or-later
"""libfabric as Debian ships it: its provider of verbs, and its layers on top."""

import re

import pytest

from tests.programs import acceptance

TCP_PORT = 47592  # of fi_pingpong
ROUNDS = 10
ROW = re.compile(r"^(\d+)([km]?) +(\d+) +=\d+ ", re.MULTILINE)  # bytes, sent
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20}
PROVIDERS = {
    "verbs;ofi_rxm": "rdm",  # connections by RDMA CM, and reliable datagrams on top of them
    "verbs": "msg",
    "verbs;ofi_rxd": "rdm",  # datagrams, and reliability on top of them
}


def packets(printed):
    """Of a line a size: each message goes there and comes back."""
    rows = [
        (int(size) * UNITS[unit], int(sent)) for size, unit, sent in ROW.findall(printed)
    ]  # fmt: skip
    return dict.fromkeys(("h1", "h2"), sum(acceptance.packets_of(n, size) for size, n in rows))


def line(provider, *flags, gid=0):
    """Endpoints are connected by IPv4: fi_pingpong takes the first address that it is offered."""
    command = ("env", f"FI_VERBS_GID_IDX={gid}", "fi_pingpong", "-p", provider,
               "-e", PROVIDERS[provider], "-I", str(ROUNDS), *flags)  # fmt: skip
    return acceptance.Line(
        command=command,
        packets=packets,
        port=TCP_PORT,
        endless=(*command, "-I", "100000000"),
        tries=3,
    )


@pytest.mark.parametrize("mode", ["msg", "tagged"])
def test_reliable_datagrams_run(pair, mode):
    acceptance.run(pair, line("verbs;ofi_rxm", "-m", mode), "none")


@pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])
def test_datagrams_run(pair, gid):
    acceptance.run(pair, line("verbs", "-e", "dgram", gid=gid), "none")


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("condition", acceptance.CONDITIONS)
def test_each_of_its_providers(pair, full, condition):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    # Over a lossy link, an end of ofi_rxd may wait for minutes for who is gone.
    applies = [each for each in PROVIDERS if condition != "loss" or each != "verbs;ofi_rxd"]
    for number, provider in enumerate(applies if full else applies[:1]):
        acceptance.run(pair, line(provider), condition, f"h{number % 2 + 1}")
