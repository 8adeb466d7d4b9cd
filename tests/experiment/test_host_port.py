# SPDX-License-Identifier: GPL-2.0-or-later
"""A host waits for its own port, on either clock: it drops nothing there, and its schedule decides.

Times of the real clock are compared in the full form alone: on a machine that others use, hosts
wait for a processor.
"""

import secrets

import numpy as np
import pytest

from softroce_lab.experiment import real, spec, virtual
from softroce_lab.fabric import lab as fabric
from softroce_lab.inputs import yaml_source
from tests import patience

MIB = 1 << 20
SHORT_BYTES = 65536
RATE_BPS = {"virtual": 100e9, "real": 1e9}
LONG_BYTES = {"virtual": 256 * MIB, "real": 64 * MIB}  # half a second on the real clock
SHORTS = 9
APART_NS = {"virtual": 2_000_000, "real": 40_000_000}
EXPERIMENT = """
name: t{name}
topology: {{generator: {{kind: star, hosts: {hosts}, access: {{rate: {rate}Gbit, limit: 256KiB}}}}}}
transports: [{transport}]
workload: {workload}
clock: {clock}
depth: 256
deadline: 30s
"""
pytestmark = pytest.mark.full("host-port")


def experiment(clock, hosts, transport, workload, rate_bps=None):
    rate = (rate_bps or RATE_BPS[clock]) / 1e9
    values = {"name": secrets.token_hex(3), "hosts": hosts, "rate": rate, "clock": clock}
    return spec.of(
        yaml_source.parse(EXPERIMENT.format(transport=transport, workload=workload, **values))
    )


def program(ranks):
    """A workload of GOAL's: lines by rank."""
    blocks = "".join(
        f"    rank {rank} {{\n" + "".join(f"      {line}\n" for line in lines) + "    }\n"
        for rank, lines in ranks.items()
    )
    return f"\n  kind: goal\n  program: |\n    num_ranks {1 + max(ranks)}\n{blocks}"


def outcome(wanted, lab=None):
    """The only run, whose hosts lost nothing at their own ports and sent nothing again."""
    (transport,) = wanted.transports
    if wanted.clock == "virtual":
        run = virtual.run(wanted, transport, 1, lambda _: None)
    else:
        run = on_real_clock(wanted, transport, lab)
    assert run.verdict == "passed", run.reasons
    from_hosts = [each for each in run.links if each["name"].startswith("h") and each["wire"]]
    assert from_hosts
    assert [each["wire"]["dropped_by_queue"] for each in from_hosts] == [0] * len(from_hosts)
    return run


def on_real_clock(wanted, transport, lab):
    made = lab or fabric.up(wanted.plan(1), ephemeral=True)
    try:
        return patience.undisturbed(
            lambda: real.run(wanted, transport, 1, lambda _: None, made), patience.emulator_drops
        )
    finally:
        if lab is None:
            made.down()


def took_ns(run, size):
    """How long a message of this size was under way, in the middle."""
    messages = run.messages[run.messages["bytes"] == size]
    assert len(messages)
    return int(np.median(messages["received_ns"] - messages["posted_ns"]))


def long_and_short(clock, peer, *, long=True, short=True):
    """A long message to rank 1, and short ones to `peer` meanwhile, one after the other."""
    size, apart_ns = LONG_BYTES[clock], APART_NS[clock]
    ranks = {0: [], 1: [], 2: []}
    if long:
        ranks[0].append(f"send {size}b to 1 tag 1")
        ranks[1].append(f"recv {size}b from 0 tag 1")
    for number in range(2, 2 + SHORTS if short else 0):
        ranks[0] += [
            f"w{number}: calc {apart_ns}",
            f"s{number}: send {SHORT_BYTES}b to {peer} tag {number}",
        ]
        ranks[0].append(f"s{number} requires w{number}")  # one processor: one after the other
        ranks[peer].append(f"recv {SHORT_BYTES}b from 0 tag {number}")
    return program(ranks)


@pytest.mark.parametrize("transport", ["rc", "csa_ud"])
def test_one_message_takes_as_long_on_both_clocks(transport, full):
    """64 MiB at 1 Gbit/s, 0.55 s: without holding back, `rc` lost 41,777 frames and took 1.26 s."""
    workload = "{kind: point-to-point, bytes: 64MiB, message: 64MiB}"
    runs = [
        outcome(experiment(clock, 2, patience.patient(transport), workload, 1e9))
        for clock in ("virtual", "real")
    ]
    assert all(run.messages["retransmitted"].sum() == 0 for run in runs)
    times_ns = [took_ns(run, 64 * MIB) for run in runs]
    if full:
        assert times_ns[1] == pytest.approx(times_ns[0], rel=0.1)


@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_a_short_message_passes_a_long_one(clock, full):
    if clock == "real" and not full:
        pytest.skip("times of the real clock are compared in the full form alone")

    def run(peer, **parts):
        return outcome(experiment(clock, 3, "csa_ud", long_and_short(clock, peer, **parts)))

    long_ns = took_ns(run(1, short=False), LONG_BYTES[clock])
    short_ns = took_ns(run(1, long=False), SHORT_BYTES)
    for peer in (1, 2):
        both = run(peer)
        assert took_ns(both, SHORT_BYTES) < 0.1 * long_ns
        if full or clock == "virtual":
            assert took_ns(both, SHORT_BYTES) <= 2 * short_ns
            share_ns = SHORTS * SHORT_BYTES * long_ns / LONG_BYTES[clock]
            assert took_ns(both, LONG_BYTES[clock]) <= 1.05 * long_ns + share_ns


@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ("incast, to: h1", "rc"),
        ("incast, to: h1", "csa_ud"),
        ("scatter, from: h1", "rc"),
        ("scatter, from: h1", "{name: csa_ud, schedule: fair}"),
    ],
)
def test_equal_flows_get_equal_shares(clock, kind, transport, full):
    """Eight hosts to one port, and eight flows from one. Jain's index of their rates."""
    if clock == "real" and not full:
        pytest.skip("nine hosts need the processors of a machine of their own")
    size = {"virtual": "8MiB", "real": "1MiB"}[clock]
    workload = f"{{kind: {kind}, bytes: {size}, message: {size}}}"
    rate_bps = {"virtual": 100e9, "real": 100e6}[clock]
    wanted = experiment(clock, 9, transport, workload, rate_bps)
    run = outcome(wanted)
    rates = 1 / (run.messages["received_ns"] - run.messages["posted_ns"]).astype(float)
    assert len(rates) == 8
    assert np.sum(rates) ** 2 / (8 * np.sum(rates**2)) >= 0.98
