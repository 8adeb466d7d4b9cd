# SPDX-License-Identifier: GPL-2.0-or-later
"""What transports do about trimmed packets on whole fabrics, and what a user's policy hears."""

import collections

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry
from tests import own_policy
from tests.two_switches import TOPOLOGY

TEXT = f"""\
name: trimmed
{TOPOLOGY}transports: [{{policy: "FILE:Own"}}]
workload: {{kind: point-to-point, bytes: 200kB, message: 40kB}}
deadline: 1s
"""
BODY = """\
    def on_trimmed(self, receive, packet, last_hop, now_ns):
        assert 0 <= packet < receive.count and last_hop is EXPECTED
        return [Feedback(receive)]
"""


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize(("link", "last_hop"), [(1, False), (2, True)])
def test_a_policy_hears_whether_the_last_hop_trimmed(tmp_path, link, last_hop, expected):
    """One that raises fails: so the hook is called."""
    file = tmp_path / "own.py"
    file.write_text(own_policy.named("Own", BODY.replace("EXPECTED", str(expected))))
    source = yaml_source.parse(TEXT.replace("FILE", str(file)), "trimmed.yaml")
    slow = spec.parse_override(f"topology.links.{link}.rate=1Gbit limit 10 trim")
    experiment = spec.of(spec.with_overrides(source, [slow]))
    (run,) = experiment_run.run(experiment, Silent(), under=tmp_path).runs
    assert bool(run.reasons) == (expected != last_hop), run.reasons


# ---------------------------------------------------------------- incasts

INCAST = """\
name: incast
topology: {generator: {kind: star, hosts: 33, access: {rate: 100Gbit, delay: 1us, queue: uet}}}
workload: {kind: incast, to: h1, bytes: 64KiB}
transports: [TRANSPORT]
"""
SETTINGS = "{name: NAME, congestion_control: CONTROL, retry_count: 7}"
WITH_A_RULE = {"csa_ud", "dcp", "mrc", "ndp", "uet_rod", "uet_rud"}
CONTROLS = ["bdp", "nscc", "grants"]
# Of its retransmissions: it takes packets for lost that trimmed ones overtook by more than an RTT.
MOST_SPURIOUS_OF_CSA_UD = 0.02


def incast(transport):
    """The run, and its retransmitted packets by reason."""
    experiment = spec.of(yaml_source.parse(INCAST.replace("TRANSPORT", transport), "incast.yaml"))
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None, with_acts=True)
    packets = collections.Counter()
    for acts in run.recoveries:
        for event, reason, number in zip(
            *map(acts.get, ("event", "reason", "packets")), strict=True
        ):
            if event == "retransmit":
                packets[reason] += int(number)
    assert run.reasons == []
    return run, packets


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("transport", sorted(WITH_A_RULE - {"csa_ud"}))
def test_each_trimmed_packet_is_retransmitted_once_and_nothing_else_is(transport, control):
    """However often a packet is trimmed, nobody gives it up: `retry_count` is 7.

    A receiver that demands order refuses what is behind a trimmed packet, and a timer retransmits
    the packets whose headers a full queue dropped.
    """
    run, packets = incast(SETTINGS.replace("NAME", transport).replace("CONTROL", control))
    figures = run.summary()
    refused = run.count(("rx_out_of_order",))
    assert figures["trimmed"] > 1000
    assert figures["retransmitted"] == figures["trimmed"] + figures["queue_drops"] + refused
    assert figures["spurious_retransmissions"] == 0
    if transport != "uet_rod":
        assert packets == {"trimmed": figures["trimmed"]}
    else:
        assert set(packets) <= {"trimmed", "nak", "timeout"}


@pytest.mark.parametrize("control", CONTROLS)
def test_csa_ud_retransmits_hardly_more_than_what_was_trimmed(control):
    run, _ = incast(SETTINGS.replace("NAME", "csa_ud").replace("CONTROL", control))
    figures = run.summary()
    spurious = figures["spurious_retransmissions"]
    print(f"{spurious} of {figures['retransmitted']} retransmissions were spurious")
    assert figures["retransmitted"] == figures["trimmed"] + spurious > 1000
    assert spurious < MOST_SPURIOUS_OF_CSA_UD * figures["retransmitted"]


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize(
    "transport", sorted(set(registry.transports(registry.Kind.SESSION)) - WITH_A_RULE)
)
def test_without_a_rule_nothing_is_retransmitted_for_being_trimmed(transport, control):
    _, packets = incast(f"{{name: {transport}, congestion_control: {control}}}")
    assert packets.total() > 100
    assert "trimmed" not in packets


def test_nscc_keeps_the_last_queue_from_trimming_again():
    trimmed = {
        control: incast(f"{{name: mrc, congestion_control: {control}}}")[0].summary()["trimmed"]
        for control in ("bdp", "nscc")
    }
    print(trimmed)
    assert 4 * trimmed["nscc"] < trimmed["bdp"]


# ---------------------------------------------------------------- a rule that cuts

CUT = f"""\
name: cut
{TOPOLOGY}transports: [TRANSPORT]
workload: {{kind: point-to-point, bytes: 400kB, message: 40kB, repeat: 2}}
payload: verify
deadline: 1s
faults: [{{name: trims, links: "*->*", cut: 5%, only: data}}]
"""
NO_PARITY = "{name: csa_ud, options: {parity: 0}}"


def cut_run(transport, *changes):
    source = yaml_source.parse(CUT.replace("TRANSPORT", transport), "cut.yaml")
    changed = spec.with_overrides(source, [spec.parse_override(each) for each in changes])
    experiment = spec.of(changed)
    run = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert run.reasons == []
    return run.summary(), collections.Counter(run.events["event"].tolist())


@pytest.mark.parametrize("transport", ["dcp", "mrc", "ndp", "uet_rud", NO_PARITY])
def test_each_packet_that_a_rule_cuts_is_retransmitted_once(transport):
    """A packet meets the rule on three links, and is cut on one of them at most."""
    figures, events = cut_run(transport)
    assert figures["trimmed"] == events["cut"] == figures["retransmitted"] > 30
    assert figures["injected_drops"] == figures["spurious_retransmissions"] == 0


def test_transports_without_a_rule_find_a_cut_packet_like_a_lost_one():
    figures, events = cut_run("{name: irn, paths: 1}")
    assert figures["retransmitted"] == events["cut"] > 30
    lost, _ = cut_run("{name: irn, paths: 1}", "faults.0.loss=random 5%", "faults.0.cut=0%")
    assert figures["retransmitted"] == pytest.approx(lost["retransmitted"], rel=0.3)


def test_a_rule_drops_what_has_no_payload_to_cut():
    figures, events = cut_run("rc", "faults=[{name: trims, links: s2->h2, cut: 5%}]")
    assert figures["trimmed"] == 0
    assert figures["injected_drops"] == events["drop"] > 5


def test_the_bound_without_loss_loses_no_payload_either():
    figures, events = cut_run("lossless")
    assert figures["trimmed"] == events["cut"] == 0
