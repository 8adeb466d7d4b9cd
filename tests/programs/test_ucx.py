# SPDX-License-Identifier: GPL-2.0-or-later
"""UCX as Debian ships it: its transports over RC and UD, and the protocols on top of them."""

import pytest

from tests.programs import acceptance

TCP_PORT = 13337  # of ucx_perftest
MESSAGES, WARM_UP = 200, 20
BYTES = 4096
# What carries the message: an RC packet in each direction, or in one; UD acknowledges by messages.
UCT = [("rc_verbs", "put_lat"), ("rc_verbs", "am_bw"), ("ud_verbs", "am_lat")]
UCP = [(by, test) for by in ("rc_v", "ud_v") for test in ("tag_bw", "ucp_put_lat", "ucp_am_lat")]
TESTS = [*UCT, *UCP]


def line(by, test, gid):
    """`by`: a transport, or the transports that the protocols may choose from."""
    environment = [f"UCX_IB_GID_INDEX={gid}"]
    command = ["ucx_perftest", "-t", test, "-n", str(MESSAGES), "-w", str(WARM_UP)]
    message_bytes = BYTES
    if (by, test) in UCT:
        message_bytes = 8
        command += ["-d", "softroce0:1", "-x", by]
    else:
        environment += [f"UCX_TLS={by}", "UCX_NET_DEVICES=softroce0:1"]
        command += ["-s", str(BYTES)]
    carry = acceptance.packets_of(MESSAGES, message_bytes)
    hosts = ["h1", "h2"] if test.endswith("lat") else ["h1"]
    command = ["env", *environment, *command]
    return acceptance.Line(
        command=tuple(command),
        packets=lambda _: dict.fromkeys(hosts, carry),
        port=TCP_PORT,
        endless=(*command, "-n", "1000000000"),
    )


@pytest.mark.parametrize(("by", "test"), TESTS)
def test_it_runs(pair, by, test):
    gid = TESTS.index((by, test)) % 2
    acceptance.run(pair, line(by, test, gid), "none")


@pytest.mark.parametrize(("by", "test", "gid"), [("rc_v", "tag_bw", 0), ("ud_v", "tag_bw", 1)])
def test_it_runs_over_a_lossy_link(pair, by, test, gid):
    acceptance.run(pair, line(by, test, gid), "loss")


@pytest.mark.parametrize(("by", "gid", "victim"), [("rc_v", 1, "h1"), ("ud_v", 0, "h2")])
def test_it_runs_again_after_a_kill(pair, by, gid, victim):
    acceptance.run(pair, line(by, "tag_bw", gid), "kill", victim)


@pytest.mark.full("verbs-acceptance")
@pytest.mark.parametrize("gid", [0, 1], ids=["ipv4", "ipv6"])
@pytest.mark.parametrize("condition", acceptance.CONDITIONS)
def test_each_of_its_tests(pair, full, condition, gid):
    """Programs of verbs: both IP versions, without faults, lossy, and again after SIGKILL."""
    for number, (by, test) in enumerate(TESTS if full else [TESTS[gid]]):
        acceptance.run(pair, line(by, test, gid), condition, f"h{number % 2 + 1}")
