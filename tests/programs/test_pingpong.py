# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own ping-pongs, unmodified."""

import itertools

import pytest

from tests.programs import acceptance
from tests.programs.pair import TCP_PORT

ROUNDS = 300
# The last acknowledgement may be lost once its sender has ended; with srq there are sixteen.
LOSSY_TRIES = 20
BYTES = {"rc": 4096, "uc": 4096, "ud": 1024, "srq": 4096}


@pytest.mark.parametrize("events", [(), ("-e",)], ids=["polls", "waits"])
@pytest.mark.parametrize(("service", "gid"), [("rc", 0), ("uc", 1), ("ud", 0), ("srq", 1)])
def test_it_runs(pair, service, gid, events):
    command = [f"ibv_{service}_pingpong", "-g", str(gid), "-n", str(ROUNDS)]
    payload_bytes = ROUNDS * BYTES[service]
    command += ["-s", str(BYTES[service]), *events]
    with pair.sending("h1", payload_bytes), pair.sending("h2", payload_bytes):
        server, client = pair.converse(*command)
    for result in (server, client):
        assert f"{ROUNDS} iters in" in result.stdout


@pytest.mark.parametrize("events", [(), ("-e",)], ids=["polls", "waits"])
@pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])
def test_the_reliable_one_runs_over_a_lossy_link(pair, gid, events):
    pair.lose("1%")
    command = ["ibv_rc_pingpong", "-g", str(gid), "-n", str(ROUNDS), *events]
    with pair.sending("h1", ROUNDS * 4096):
        pair.converse(*command, tries=3)


def line(service, gid, *flags, tries=1):
    command = (f"ibv_{service}_pingpong", "-g", str(gid), "-s", str(BYTES[service]), *flags)
    carry = acceptance.packets_of(ROUNDS, BYTES[service])
    return acceptance.Line(
        command=(*command, "-n", str(ROUNDS)),
        packets=lambda _: {"h1": carry, "h2": carry},
        port=TCP_PORT,
        endless=(*command, "-n", "100000000"),
        tries=tries,
    )


@pytest.mark.parametrize(
    ("service", "gid", "victim"),
    [("rc", 0, "h1"), ("uc", 1, "h2"), ("ud", 0, "h2"), ("srq", 1, "h1")],
)
def test_it_runs_again_after_a_kill(pair, service, gid, victim):
    acceptance.run(pair, line(service, gid), "kill", victim)


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("condition", acceptance.CONDITIONS)
def test_each_of_them(pair, full, condition):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    # Where the service is not reliable, somebody waits for ever for a message that is lost.
    services = ["rc", "srq"] if condition == "loss" else list(BYTES)
    cases = list(itertools.product(services, (0, 1), ((), ("-e",))))
    for number, (service, gid, flags) in enumerate(cases if full else cases[-1:]):
        tries = LOSSY_TRIES if condition == "loss" else 1
        acceptance.run(
            pair, line(service, gid, *flags, tries=tries), condition, f"h{number % 2 + 1}"
        )
