# SPDX-License-Identifier: GPL-2.0-or-later
"""Every packet is somewhere, at every node, whatever happens to it, at any moment.

And a transport gives up on nobody without having lost as much as that takes.
"""

import dataclasses

import pytest

from softroce_lab.errors import ibv_wc_status
from softroce_lab.experiment import spec
from softroce_lab.experiment.fuzz import invariants
from softroce_lab.experiment.virtual import VirtualRun
from softroce_lab.inputs import yaml_source
from softroce_lab.transports.defaults import Timing

FILE = """\
name: books
topology:
  generator:
    kind: leaf-spine
    leaves: 2
    spines: 2
    hosts_per_leaf: 2
    access: {rate: 100Gbit limit 64, delay: 1us 500ns reorder allow}
    core: {rate: 25Gbit limit 16 ecn 4, delay: 1us}
lb: spray
transports: [csa_ud, rc, irn]
workload: {kind: all-to-all, bytes: 64KiB, message: 16KiB}
deadline: 40us
"""
FAULTS = {
    "none": None,
    "random": "loss: random 5%",
    "gemodel": "loss: gemodel 1% 25%",
    "burst": "loss: burst 1% 5",
    "periodic": "loss: periodic 20 2",
    "blackout": "loss: blackout, at: 10us, for: 15us",
    "named": "drop: {message: 0, packet: 1, iter: 1}",
    "tail": "drop: {tail: 1, iter: 1}",
    "corrupt": "corrupt: 5%",
    "duplicate": "duplicate: 20%",
    "reorder": "reorder: 10% by 5us",
    "flap": "down: true, at: 5us, for: 10us, every: 25us",
    "death": "down: true, at: 10us",
}


def cut_short(transport, *changes):
    source = yaml_source.parse(FILE, "file.yaml")
    overrides = [spec.parse_override(each) for each in changes]
    experiment = spec.of(spec.with_overrides(source, overrides))
    chosen = next(each for each in experiment.transports if each.name == transport)
    made = VirtualRun(experiment, chosen, 1, lambda _: None)
    return made, made.go()


QUIET = ("blackout", "periodic")  # RC waits for its timer then


@pytest.mark.parametrize(
    ("queue", "rnic"), [("limit 16 ecn 4", "lru-512"), ("limit 8 trim", "ideal")]
)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
def test_packets_are_accounted_for_in_the_middle_of_a_run(transport, fault, queue, rnic):
    links = "leaf1<->spine1" if fault in ("flap", "death") else "*<->*"
    rule = f'[{{name: x, links: "{links}", {FAULTS[fault]}}}]' if FAULTS[fault] else "[]"
    core = f"topology.generator.core={{rate: 25Gbit {queue}, delay: 1us}}"
    made, run = cut_short(transport, f"faults={rule}", core, f"rnic={rnic}")
    assert "deadline" in run.problems[0]
    assert made.fabric.native.in_flight > 0 or fault in QUIET
    assert books(made) == []


def books(made):
    fabric = made.fabric
    checks = (invariants._links, invariants._switches, invariants._ports)
    return [broken for check in checks for broken in check(fabric)]


def test_a_packet_that_an_rnic_still_processes_is_not_sent_yet():
    held = []
    for moment in range(15, 30):
        made, _ = cut_short("irn", "rnic=lru-512", f"deadline={moment}us")
        held += [totals["held"] for _, totals in made.fabric.port_totals()]
        assert books(made) == []
    assert any(held)


# --- Who may give up -------------------------------------------------------------------------

TIMEOUT_US = 262  # of RC where a full queue takes no longer (IBA 9.7.6.1.3)
ROOMY = "topology.generator.core={rate: 100Gbit, delay: 1us}"
RETRY_EXC = int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)


def with_outage(links, lasts_us, kind="blackout"):
    """RC from h1 to h4, 16 messages, while a rule acts."""
    return cut_short(
        "rc",
        f'faults=[{{name: x, links: "{links}", loss: {kind}, at: 5us, for: {lasts_us}us}}]',
        "workload={kind: point-to-point, bytes: 256KiB, message: 16KiB, from: h1, to: h4}",
        "transports=[{name: rc, congestion_control: bdp}]",
        ROOMY,
        "lb=flow",
        "deadline=10s",
    )


def excused(made, run, which=-1, *, later_ns=0):
    """Whether one message, had it failed when all was over or later, would be excused."""
    messages = run.messages.copy()
    messages["status"][which], messages["completed_ns"][which] = RETRY_EXC, run.end_ns + later_ns
    run = dataclasses.replace(run, messages=messages)
    return not any("fails" in each for each in invariants.violations(made, run, may_fail=False))


def test_eight_timeouts_without_a_word_may_end_a_connection():
    made, run = with_outage("h1->*", 10 * TIMEOUT_US)
    assert RETRY_EXC in run.messages["status"]
    assert invariants.violations(made, run, may_fail=False) == []


def test_an_outage_of_fewer_timeouts_ends_no_connection():
    _, run = with_outage("h1->*", 6 * TIMEOUT_US)
    assert run.verdict == "passed"


@pytest.mark.parametrize("kind", ["blackout", "gemodel 30% 20%", "burst 10% 8"])
def test_an_outage_excuses_only_whom_it_took_packets_from(kind):
    assert not excused(*with_outage("h3->*", 6 * TIMEOUT_US, kind))
    assert excused(*with_outage("h1->*", 6 * TIMEOUT_US, kind))


def test_an_outage_excuses_nobody_who_fails_long_after_it():
    made, run = with_outage("h1->*", 6 * TIMEOUT_US)
    assert excused(made, run, later_ns=2 * TIMEOUT_US * 1000)
    assert not excused(made, run, later_ns=17 * TIMEOUT_US * 1000)


@pytest.mark.parametrize(("lost", "may"), [(2, False), (3, True)])
def test_a_connection_ends_by_one_loss_more_than_its_retries(lost, may):
    each = [*range(1, lost + 1)]
    made, run = cut_short(
        "rc",
        f'faults=[{{name: x, links: "h1->*", drop: {{qpn: 1, psn: 1, iter: {each}}}}}]',
        "workload={kind: point-to-point, bytes: 32KiB, message: 16KiB, from: h1, to: h4}",
        "transports=[{name: rc, retry_count: 2}]",
        ROOMY,
        "topology.generator.access={rate: 100Gbit, delay: 1us}",  # nothing is overtaken
        "lb=flow",
        "deadline=10s",
    )
    assert (RETRY_EXC in run.messages["status"], excused(made, run)) == (may, may)


def flapping(us):
    """ud_rto from h1 to h4 while the link of h1 flaps, for some 400 round trips."""
    return cut_short(
        "ud_rto",
        f'faults=[{{name: x, links: "h1<->*", at: 1us, down: true, every: 50us, for: {us}us}}]',
        "workload={kind: point-to-point, bytes: 1MiB, message: 16KiB, from: h1, to: h4}",
        "transports=[ud_rto]",
        ROOMY,
        "lb=flow",
        "deadline=10s",
    )


@pytest.mark.parametrize(("down_us", "may"), [(25, True), (1, False)])
def test_outages_excuse_a_policy_where_they_take_more_than_its_bounds_allow(down_us, may):
    made, run = flapping(down_us)
    assert excused(made, run) is may


# --- Every attempt of a packet lost ----------------------------------------------------------

ATTEMPTS = Timing().most_attempts


def from_h1_to_h4(transport, fault, size):
    """Messages of 16 KiB while nothing is overtaken or full."""
    return cut_short(
        transport,
        f"faults=[{{name: x, {fault}}}]",
        f"workload={{kind: point-to-point, bytes: {size}, message: 16KiB, from: h1, to: h4}}",
        f"transports=[{transport}]",
        ROOMY,
        "topology.generator.access={rate: 100Gbit, delay: 1us}",
        "lb=flow",
        "deadline=10s",
    )


def data_lost(transport, lasts_us):
    fault = f'links: "h1->*", loss: random 100%, only: data, for: {lasts_us}us'
    return from_h1_to_h4(transport, fault, "1KiB")


@pytest.mark.parametrize("transport", ["csa_ud", "uccl"])
def test_a_peer_that_is_heard_may_be_given_up_where_every_attempt_of_a_packet_was_lost(transport):
    made, run = data_lost(transport, 1_000_000)
    assert run.messages["status"].tolist() == [RETRY_EXC]
    assert invariants.violations(made, run, may_fail=False) == []


def told(made, most):
    """As if a session were to send a packet so often."""
    timing = dataclasses.replace(made.tuning.timing, most_attempts=most)
    tuning = dataclasses.replace(made.tuning, timing=timing)
    made.tuning_of = lambda _: tuning


@pytest.mark.parametrize(("more", "may"), [(0, True), (1, False)])
def test_a_packet_that_was_not_lost_so_often_excuses_nobody(more, may):
    made, run = data_lost("uccl", 5000)
    told(made, int(run.messages["retransmitted"][0]) + more)  # the last attempt arrived
    assert excused(made, run) is may


@pytest.mark.parametrize(
    ("transport", "links", "every", "size"),
    [("uccl", "h4->*", 2, "0KiB"), ("uet_rod", "h1<->*", 3, "4KiB")],
)
def test_an_outage_in_step_excuses_no_more_than_the_attempts_that_it_took(
    transport, links, every, size
):
    fault = f'links: "{links}", loss: periodic {every} 1, key: index'
    made, run = from_h1_to_h4(transport, fault, size)
    assert RETRY_EXC in run.messages["status"]
    assert invariants.violations(made, run, may_fail=False) == []
    told(made, ATTEMPTS + 10)
    assert invariants.violations(made, run, may_fail=False) != []


def test_lost_answers_excuse_no_message_that_was_not_sent_so_often():
    made, run = from_h1_to_h4("uccl", 'links: "h4->*", loss: periodic 3 1, key: index', "4MiB")
    assert run.verdict == "passed"
    assert len(made.fabric.injections()) > ATTEMPTS
    assert not excused(made, run)


@pytest.mark.parametrize(("late_us", "may"), [(2 * TIMEOUT_US, True), (TIMEOUT_US // 2, False)])
def test_what_is_held_up_for_longer_than_a_timeout_is_a_heavy_loss(late_us, may):
    late = f"reorder: 20% by {late_us}us"
    assert excused(*from_h1_to_h4("rc", f'links: "*<->*", {late}', "256KiB")) is may
