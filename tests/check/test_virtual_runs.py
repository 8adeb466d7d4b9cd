# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs of the virtual clock that went well, by their captures and run directories."""

import json

import pyarrow.parquet as pq
import pytest

from softroce_lab.check import suites
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from tests import own_policy
from tests.check.plant import check, failed
from tests.two_switches import TOPOLOGY

LINE = f"""\
name: line
{TOPOLOGY}workload: {{kind: point-to-point, bytes: 400kB, message: 40kB}}
deadline: 1s
"""
CORRUPTS = """
faults: [{name: flips, links: "s1<->s2", corrupt: 5%}]
"""
TRIMS = """\
name: incast
topology:
  generator: {kind: star, hosts: 3, access: {rate: 1Gbit limit 10 trim, delay: 1us}}
workload: {kind: incast, to: h1, bytes: 256KiB, message: 16KiB}
faults: [{name: copies, links: "*->h1", duplicate: 20%}]
deadline: 1s
"""


def checked(tmp_path, text, transport, links, snap):
    experiment = spec.of(yaml_source.parse(f"{text}transports: [{transport}]\n"))
    outcome = experiment_run.run(experiment, Silent(), under=tmp_path, capture=Wanted(links, snap))
    assert outcome.passed
    return check(outcome.directory, of=suites.Format.AUTO)


@pytest.mark.parametrize("links", [("h2",), ("*",)])
def test_a_sender_that_is_told_of_losses_by_the_fabric_is_not_blamed(tmp_path, links):
    """What the oracle retransmits, nobody asks for: its feedback is in no capture."""
    faults = CORRUPTS.replace("}]", '}, {name: loss, links: "s1->s2", loss: random 5%}]')
    verdicts = checked(tmp_path, LINE + faults, "oracle", links, 0)
    assert failed(verdicts) == set()
    assert verdicts["sr.attempts"].outcome == Outcome.PASS


CODED = "{k: 4, m: 2, chunk: 4KiB}"


@pytest.mark.parametrize(
    ("framing", "loss", "links"),
    [("ud", "2%", ("h2",)), ("ud", "20%", ("*",)), ("uc_immediate", "20%", ("h2",))],
)
def test_what_parity_restored_need_not_be_retransmitted(tmp_path, framing, loss, links):
    """Few losses are restored; with many, selective repeat carries the rest."""
    faults = CORRUPTS.replace("}]", f'}}, {{name: loss, links: "s1->s2", loss: random {loss}}}]')
    transport = f"{{name: sdr_ec, framing: {framing}, options: {CODED}}}"
    verdicts = checked(tmp_path, "mtu: 1500\n" + LINE + faults, transport, links, 0)
    assert failed(verdicts) == set()
    assert verdicts["once.length"].outcome == Outcome.PASS
    assert verdicts["once.whole"].outcome == Outcome.PASS


@pytest.mark.parametrize("links", [("h1",), ("*",)])
def test_a_sender_that_chooses_its_code_may_retransmit_by_its_timer(tmp_path, links):
    """Most answers are lost; without parity its timer then retransmits what nobody asked for."""
    loss = '{name: loss, links: "s2->s1", loss: random 60%, only: control}'
    text = LINE.replace("400kB", "2MB").replace("40kB", "4kB") + f"faults: [{loss}]\n"
    transport = "{name: sdr_auto, options: {chunk: 4KiB}}"
    verdicts = checked(tmp_path, "mtu: 1500\n" + text, transport, links, 0)
    assert failed(verdicts) == set()
    assert verdicts["sr.only-holes"].checked > 20


@pytest.mark.parametrize("loss", ["0.1%", "10%"])
@pytest.mark.parametrize("message", ["3kB", "7kB"])
def test_headers_tell_the_code_of_each_message(tmp_path, message, loss):
    """Messages of two packets and more, with parity, with other parity and with none."""
    faults = f'faults: [{{name: loss, links: "s1->s2", loss: random {loss}}}]\n'
    text = "mtu: 1500\n" + LINE.replace("400kB", "2MB").replace("40kB", message) + faults
    verdicts = checked(tmp_path, text, "sdr_auto", ("*",), 0)
    assert failed(verdicts) == set()
    assert verdicts["parity.once"].outcome == Outcome.PASS


PARITY = "{name: csa_ud, options: {parity: 2}}"


@pytest.mark.parametrize(
    "fault",
    [
        "loss: random 5%",
        "drop: {only: parity}",
        "drop: {tail: 1, iter: 1}",
        "corrupt: 5%",
        "duplicate: 20%",
    ],
)
@pytest.mark.parametrize("links", [("*",), ("h2",)], ids=str)
def test_parity_of_csa_ud_keeps_its_rules(tmp_path, fault, links):
    faults = f'faults: [{{name: rule, links: "s1->s2", {fault}}}]\n'
    verdicts = checked(tmp_path, LINE + faults, PARITY, links, 0)
    assert failed(verdicts) == set()
    for rule in ("parity.block", "parity.once"):
        assert verdicts[rule].outcome == Outcome.PASS or (links == ("h2",) and "only" in fault)


def test_the_budget_of_parity_is_that_of_a_host_for_all_peers(tmp_path):
    """The peers that get it get more than 15 % of their data."""
    text = "name: all\ntopology: {generator: {kind: star, hosts: 4}}\n"
    text += "workload: {kind: all-to-all, bytes: 16KiB}\ndeadline: 1s\n"
    verdicts = checked(tmp_path, text, "{name: csa_ud, options: {parity: 4}}", ("*",), 0)
    assert failed(verdicts) == set()
    assert verdicts["parity.budget"].outcome == Outcome.PASS


@pytest.mark.parametrize(
    ("transport", "links"), [("csa_ud", ("*",)), ("irn", ("h2",)), ("sdr_sr", ("*",))]
)
def test_a_flipped_bit_behind_which_the_icrc_was_cut(tmp_path, transport, links):
    """Captured on the link with the rule it is known as lost, else nothing is said of it."""
    verdicts = checked(tmp_path, LINE + CORRUPTS, transport, links, 256)
    assert failed(verdicts) == set()
    assert verdicts["once.counted"].outcome == Outcome.INCONCLUSIVE
    whole = checked(tmp_path / "whole", LINE + CORRUPTS, transport, links, 0)
    assert failed(whole) == set()
    assert whole["once.counted"].outcome == Outcome.PASS
    if links == ("*",):
        repaired = [each["sr.repaired"].checked for each in (verdicts, whole)]
        assert repaired[0] == repaired[1] > 10


RING = """\
name: ring
topology: {generator: {kind: star, hosts: 3, access: {rate: 10Gbit, delay: 1us}}}
workload: {kind: ring-all-reduce, bytes: 64KiB, message: 8KiB, repeat: 20}
faults: [{name: loss, links: "*->*", loss: random 16%}]
payload: verify
deadline: 1s
"""


def test_what_a_ring_sends_again_is_other_bytes_when_it_had_arrived(tmp_path):
    """Whether it had is known at the receiver; captured are the links of h2 alone."""
    at_both = checked(tmp_path / "both", RING, "sdr_sr", ("*",), 0)
    assert failed(at_both) == set()
    assert "retransmitted with other bytes when they had arrived" in at_both["once.bytes"].note
    alone = checked(tmp_path / "alone", RING, "sdr_sr", ("h2",), 0)
    assert failed(alone) == set()
    assert "was not captured" in alone["once.bytes"].note


SPRAYED = """\
name: sprayed
topology:
  generator:
    kind: leaf-spine
    leaves: 2
    spines: 4
    hosts_per_leaf: 4
    access: {rate: 400Gbit, delay: 500ns}
    core: {rate: 400Gbit, delay: 500ns 200ns reorder preserve}
lb: spray
depth: 2
workload: {kind: all-to-all, bytes: 4096B, message: 1KiB}
deadline: 1s
"""


def test_answers_that_took_several_ways_overtake_each_other(tmp_path):
    verdicts = checked(tmp_path, SPRAYED, "rc", ("h1",), 128)
    assert failed(verdicts) == set()
    assert verdicts["rc.msn-monotonic"].note


CROWD = """\
name: crowd
topology:
  generator: {kind: star, hosts: 10, access: {rate: 100Gbit limit 6, delay: 1us}}
workload: {kind: all-to-all, bytes: 16KiB, message: 2KiB}
faults: [{name: bursts, links: "h2<->*", loss: burst 2% 2}]
deadline: 1s
"""


@pytest.mark.parametrize("transport", ["{name: irn, timeout: 100us}", "srnic"])
def test_answers_that_the_queue_of_the_senders_link_drops(tmp_path, transport):
    """Captured where that link begins, they did not reach the sender: it may send again."""
    verdicts = checked(tmp_path, CROWD, transport, ("*",), 128)
    assert failed(verdicts) == set()
    assert "behind the capture, dropped packets" in verdicts["sr.only-holes"].note


FILLED = """\
name: filled
topology:
  generator: {kind: star, hosts: 9, access: {rate: 100Gbit, delay: 1us, limit: 512KiB}}
workload: {kind: incast, bytes: 256KiB, to: h1}
deadline: 1s
"""


@pytest.mark.parametrize(("timer_us", "outcome"), [(0, Outcome.PASS), (400, Outcome.FAIL)])
def test_a_timer_ran_out_although_its_oldest_packet_was_acknowledged_before_it_left_again(
    tmp_path, timer_us, outcome
):
    """A full queue acknowledges slowly: what is behind the oldest packet leaves again.

    Had the timer been longer, as a changed manifest claims, there would be no reason.
    """
    checked(tmp_path, FILLED, "srnic", ("*",), 128)
    (manifest,) = tmp_path.glob("2*/manifest.json")
    found = json.loads(manifest.read_text())
    if timer_us:
        found["runs"][0]["timing"]["initial_rtt_ns"] = timer_us * 100  # the timer: 10 base RTTs
        manifest.write_text(json.dumps(found))
    verdict = check(manifest.parent, of=suites.Format.AUTO)["sr.only-holes"]
    assert verdict.outcome == outcome
    assert verdict.checked > 100


def test_what_came_twice_to_a_host_that_was_not_captured(tmp_path):
    text = TRIMS.replace("kind: incast, to: h1", "kind: all-to-all").replace("*->h1", "*->h3")
    text = text.replace(" limit 10 trim", " limit 1000")
    verdicts = checked(tmp_path, text, "csa_ud", ("s1->h2",), 256)
    assert failed(verdicts) == set()
    assert verdicts["once.counted"].outcome == Outcome.PASS
    assert checked(tmp_path / "all", text, "csa_ud", ("*",), 256)["once.counted"].checked == 1


@pytest.mark.parametrize("transport", ["sdr_sr"])
def test_no_message_is_sent_under_two_ids(tmp_path, transport):
    experiment = spec.of(yaml_source.parse(f"{LINE}transports: [{transport}]\n"))
    wanted = Wanted(("*",), 256)
    folder = experiment_run.run(experiment, Silent(), under=tmp_path, capture=wanted).directory
    assert failed(check(folder, of=suites.Format.AUTO)) == set()
    messages = pq.read_table(folder / "messages.parquet")
    pq.write_table(messages.slice(1), folder / "messages.parquet")
    verdicts = check(folder, of=suites.Format.AUTO)
    assert failed(verdicts) == {"once.id"}
    count = len(messages)
    text = f"{count} message ids were sent, and the run had {count - 1} messages"
    assert verdicts["once.id"].exhibits[0].text == text


def test_an_acknowledgement_of_a_refusal_is_none_of_the_message(tmp_path):
    """Nothing reaches h1, so it gives up what it sent, and h2 says that it heard so."""
    faults = (
        'faults: [{name: deaf, links: "*->h1", loss: random 100%}, '
        '{name: holes, links: "h1->*", loss: random 20%}]\nblackout: 30ms\n'
    )
    both_ways = LINE.replace("point-to-point", "all-to-all")  # the last to fail ends the run
    source = yaml_source.parse(f"{both_ways}{faults}transports: [csa_ud]\n")
    wanted = Wanted(("*",), 256)
    outcome = experiment_run.run(spec.of(source), Silent(), under=tmp_path, capture=wanted)
    assert not outcome.passed
    assert failed(check(outcome.directory, of=suites.Format.AUTO)) == {"once.ended-well"}


def test_attempts_at_uc_packets_that_were_not_seen(tmp_path):
    """At the receiver alone: the attempt between two on one path was lost on its way."""
    faults = 'faults: [{name: often, links: "s1->s2", loss: periodic 27 5}]\n'
    verdicts = checked(tmp_path, LINE + faults, "sdr_sr", ("h2",), 0)
    assert failed(verdicts) == set()
    assert verdicts["sr.other-path"].outcome == Outcome.INCONCLUSIVE
    at_both = checked(tmp_path / "both", LINE + faults, "sdr_sr", ("h1", "h2"), 0)
    assert failed(at_both) == set()
    assert at_both["sr.other-path"].outcome == Outcome.PASS


@pytest.mark.parametrize("transport", ["csa_ud", "srnic", "uet_rud", "uet_rod", "ndp"])
def test_what_a_link_trims_comes_as_no_duplicate(tmp_path, transport):
    verdicts = checked(tmp_path, TRIMS, transport, ("*",), 256)
    assert failed(verdicts) == set()
    assert verdicts["once.counted"].outcome == Outcome.PASS


@pytest.mark.parametrize("links", [("*",), ("ends",), ("h1",)])
@pytest.mark.parametrize("transport", ["csa_ud", "dcp", "mrc", "uet_rod", "irn"])
def test_what_a_rule_cuts_explains_retransmissions(tmp_path, transport, links):
    """The links that cut are captured with `ends`; at h1 nobody knows what they did."""
    trims = 'faults: [{name: trims, links: "s1->s2", cut: 5%, only: data}]\n'
    verdicts = checked(tmp_path, LINE + trims, transport, links, 256)
    assert failed(verdicts) == set()
    assert verdicts["sr.repaired"].checked > 10 or links == ("h1",)


EAGER = own_policy.named(
    "Eager",
    """\
    seen = ()

    def on_sent(self, send, now_ns):
        first = send.handle not in self.seen
        self.seen = (*self.seen, send.handle)
        return [*([Retransmit(send, [0])] if first else []), *super().on_sent(send, now_ns)]
""",
)


def test_a_users_policy_is_judged_by_the_rules_of_sessions_alone(tmp_path):
    """It retransmits for reasons of its own: no rule about the reasons of ud_rto is of it."""
    (tmp_path / "eager.py").write_text(EAGER)
    text = f"{LINE}transports: [{tmp_path}/eager.py:Eager]\n"
    experiment = spec.of(yaml_source.parse(text))
    wanted = Wanted(("*",), 0)
    outcome = experiment_run.run(experiment, Silent(), under=tmp_path, capture=wanted)
    assert outcome.passed
    verdicts = check(outcome.directory, of=suites.Format.AUTO)
    assert failed(verdicts) == set()
    assert verdicts["sr.only-holes"].checked == 0
    assert verdicts["once.counted"].outcome == Outcome.PASS
    manifest = outcome.directory / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"user\'s policy"', '"ud_rto"'))
    verdicts = check(outcome.directory, of=suites.Format.AUTO)
    assert verdicts["sr.only-holes"].checked == 10
