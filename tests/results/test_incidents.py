# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of a message agrees with the table of messages, for every transport."""

import collections

import pytest

from softroce_lab.results.incidents import What
from softroce_lab.results.recorded import Recorded
from softroce_lab.results.story import Explained
from tests.results.made import ring, run

ALL = ("csa_ud", "ud_rto", "sdr_sr", "irn", "srnic", "rc", "oracle")


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return Recorded(ring(tmp_path_factory.mktemp("all"), transports=ALL))


def check_sent_again(known, found):
    """What was sent again is of a message, of each as often as its row counts."""
    again = collections.Counter()
    for each in known.incidents:
        if each.what is What.SENT_AGAIN:
            assert each.message >= 0, each
            again[each.message] += 1
    counted = known.messages.columns["retransmitted"].tolist()
    assert [again[row] for row in range(len(counted))] == counted
    assert sum(counted) == found["retransmitted"] > 0


@pytest.mark.parametrize("rails", ["rail: 1, rails: 2", "rail: 3, rails: 3"])
def test_messages_of_several_rails_are_told_apart(tmp_path, rails):
    """A queue pair of each rail has its own PSNs, and every second or third message."""
    workload = "{kind: all-to-all, hosts: [h1, h2, h3], bytes: 256KiB, message: 8KiB, RAILS}"
    directory = run("ring-all-reduce", tmp_path,
        "topology={generator: {kind: dual-rail, leaves: 1, hosts_per_leaf: 3, rails: 3}}",
        f"workload={workload.replace('RAILS', rails)}",
        "faults=[{name: all, links: 'h*<->leaf*', loss: random 1%}]", transports=("rc", "irn"),
    )  # fmt: skip
    recorded = Recorded(directory)
    for found in recorded.runs:
        known = Explained.of(recorded, found)
        lost = [each for each in known.incidents if each.what is What.DROP and each.kind != "other"]
        check_sent_again(known, found)
        assert found["protocol"] == "rc" or lost


@pytest.mark.parametrize("transport", ALL)
def test_what_is_known_of_messages_agrees(every, transport):
    """With the table of messages; times add up; packets leave again by a decision about them."""
    found = every.run(f"{transport}/1")
    known = Explained.of(every, found)
    check_sent_again(known, found)
    lost = 0
    for row in range(len(known.messages)):
        tale = known.story(row)
        assert tale.status == "delivered"
        assert sum(part.length_ns for part in tale.parts) == tale.taken_ns
        assert all(part.length_ns >= 0 for part in tale.parts)
        lost += tale.last_packet is not None
        dropped = {(e.first, e.attempt) for e in tale.incidents if e.what is What.DROP}
        arrived = {e.first for e in tale.incidents if e.what is What.ARRIVED}
        assert {packet for packet, attempt in dropped if attempt == 0} >= arrived
    assert lost > 0
    decided = collections.defaultdict(list)
    for each in known.incidents:
        if each.what is What.DECISION:
            assert each.why not in ("", "policy"), each
            decided[each.message].append(each)
        if each.what is What.SENT_AGAIN:
            before = decided[each.message]
            assert any(one.first <= each.first <= one.last for one in before), each


@pytest.fixture(scope="module")
def lossy(tmp_path_factory):
    fault = "faults=[{name: loss, links: 'leaf*<->spine*', loss: random 5%}]"
    return Recorded(ring(tmp_path_factory.mktemp("lossy"), fault, "seeds=[1]",
                         transports=("irn", "rc")))  # fmt: skip


@pytest.mark.parametrize("transport", ["irn", "rc"])
def test_losses_of_a_run_are_those_with_data(lossy, transport):
    """A drop goes the way of a ring's data, or it is one of what goes back: ACKs and NAKs."""
    found = lossy.run(f"{transport}/1")
    known, events = Explained.of(lossy, found), lossy.table("events", found)
    addresses = {name: address for address, name in known.messages.hosts.items()}
    of = known.messages.columns
    ways = {(addresses[one], addresses[other]) for one, other in
            zip(of["source"].tolist(), of["destination"].tolist(), strict=True)}  # fmt: skip
    dropped = [way for way, event in zip(zip(events["src"], events["dst"], strict=True),
               events["event"], strict=True) if event == "drop"]  # fmt: skip
    assert len(dropped) == found["injected_drops"]
    with_data = sum(way in ways for way in dropped)
    assert len(known.lost) == with_data > 0
    assert f"{with_data} data packet" in known.loss_words()
    assert with_data < len(dropped)


def test_losses_of_a_run_whose_packets_name_no_message(every):
    run = {**every.run("rc/1"), "queue_pairs": []}
    known = Explained.of(every, run)
    assert not known.messages.names_packets
    drops = every.run("rc/1")["injected_drops"]
    assert known.loss_words() == f"In all of rc/1: {drops} packets lost, ACKs and NAKs among them."


def test_losses_of_full_queues_have_their_link_and_cause(tmp_path):
    access = "access: {rate: 10Gbit, delay: 1us, limit: 16}"
    narrow = f"topology={{generator: {{kind: star, hosts: 5, {access}}}}}"
    made = Recorded(run("incast", tmp_path, narrow, "workload={kind: incast, bytes: 256KiB}",
                        transports=("csa_ud", "rc")))  # fmt: skip
    for each in made.runs:
        known = Explained.of(made, each)
        queues = [one for one in known.incidents if one.why == "full queue"]
        assert len(queues) == each["queue_drops"] > 0
        at = collections.Counter(one.where for one in queues)
        wires = {link["name"]: link["wire"] for link in made.links[each["run"]]}
        assert at == {n: w["dropped_by_queue"] for n, w in wires.items() if w["dropped_by_queue"]}
        rows = {one.message for one in queues if one.kind in ("data", "other")}
        assert max(rows) >= 0
