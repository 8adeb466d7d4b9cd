# SPDX-License-Identifier: GPL-2.0-or-later
"""What networks do to packets is not held against the hosts: they lose them before the capture,
duplicate, delay and reorder them, and the capture has only some of it."""

import json

import pytest

from softroce_lab.check import suites
from softroce_lab.check.striped.messages import RENAMED_TIMING
from softroce_lab.check.verdict import Outcome
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from tests.check import plant
from tests.check.plant import Talk, failed

TEXT = """\
name: networks
topology: {{generator: {{kind: leaf-spine, leaves: 2, spines: 2, hosts_per_leaf: 1,
                         access: {link}, core: {link}}}}}
transports: [{transport}]
workload: {{kind: point-to-point, bytes: {size}, message: {message}}}
faults: [{faults}]
deadline: 20s
seeds: [{seed}]
"""
DEFAULTS = {
    "link": "{rate: 10Gbit, delay: 5us}",
    "size": "64KiB",
    "message": "1KiB",
    "faults": "",
    "seed": 1,
}
SOME_LOST = '{name: x, links: "h1->*", loss: 5%}'


def run(folder, links="*->*", **wanted):
    """The directory of a run on the virtual clock from h1 to h2, some links of it captured."""
    experiment = spec.of(yaml_source.parse(TEXT.format_map(DEFAULTS | wanted)))
    capture = Wanted(tuple(links.split()), 0)
    return experiment_run.run(experiment, Silent(), under=folder, capture=capture).directory


def check(path):
    """Verdicts by rule, those of the lab's transports with them."""
    return plant.check(path, of=suites.Format.LAB)


def with_faults(folder, tape, *faults):
    """A run directory with a tape, and a manifest that tells of these faults and their links."""
    facts = [{"rule": "x", "fault": what, "links": [link]} for what, link in faults]
    (folder / "manifest.json").write_text(json.dumps({"faults": facts}))
    tape.write(folder / "trace.pcapng")
    return folder


def alone(directory):
    """Its capture, in no run directory."""
    return (directory / "trace.pcapng").rename(directory.parent / "alone.pcapng")


def test_who_asks_by_key_means_a_message_that_the_capture_has_not_yet(tmp_path):
    """All packets of some messages are lost before the only place of capture, the receiver's."""
    verdicts = check(run(tmp_path, "leaf2->h2 h2->leaf2", transport="csa_ud", faults=SOME_LOST))
    assert not failed(verdicts)
    assert verdicts["sr.only-holes"].checked > 0


@pytest.mark.parametrize("transport", ["irn"])
def test_nothing_is_said_of_paths_where_the_transport_is_not_known(tmp_path, transport):
    """Messages of one packet bring no answer that only one transport says."""
    verdicts = check(alone(run(tmp_path, transport=transport, faults=SOME_LOST)))
    assert not failed(verdicts)
    assert verdicts["sr.other-path"].outcome is Outcome.INCONCLUSIVE
    assert "which transport" in verdicts["sr.other-path"].note


@pytest.mark.parametrize("transport", ["sdr_sr"])
def test_copies_that_a_link_elsewhere_made_are_not_the_senders(tmp_path, transport):
    faults = '{name: x, links: "leaf*->spine*", duplicate: 20%}'
    directory = run(tmp_path, "leaf2->h2 h2->leaf2", transport=transport, faults=faults)
    verdicts = check(directory)
    assert not failed(verdicts)
    assert "a rule duplicates" in verdicts["uc.once"].note
    assert "uc.once" in failed(check(alone(directory)))


# ---------------------------------------------------------------- packets that overtake each other

JITTER = "{rate: 1Gbit, delay: 100us 90us reorder allow}"


@pytest.mark.parametrize(
    ("links", "rule"),
    [
        ("*->*", "rc.in-order"),
        ("leaf2->h2 h2->leaf2", "rc.in-order"),
        ("leaf1->spine* spine*->leaf1", "rc.ack-order"),
        ("leaf1->h1 h1->leaf1", "rc.msn-monotonic"),
    ],
)
def test_what_overtakes_out_of_sight_of_the_capture_is_in_order(tmp_path, links, rule):
    verdicts = check(run(tmp_path, links, transport="rc", message="16KiB", seed=2, link=JITTER))
    assert not failed(verdicts)
    assert "overtaken each other" in verdicts[rule].note


def test_packets_that_overtake_each_other_in_a_capture_may_do_so_behind_it(tmp_path):
    directory = run(tmp_path, transport="rc", message="16KiB", seed=2, link=JITTER)
    verdicts = check(alone(directory))
    assert not failed(verdicts)
    assert "overtaken each other" in verdicts["rc.in-order"].note


def test_a_rule_on_another_link_excuses_no_responder(tmp_path):
    talk = Talk()
    talk.interfaces = ["leaf2->h2"]
    for psn in (1, 3, 4, 2):
        talk.ask(psn)
    talk.ack(4, 4)
    rule = "reorder 5% by 50us"
    verdicts = check(with_faults(tmp_path, talk, (rule, "leaf1:h1->h1:eth1")))
    assert failed(verdicts) == {"rc.in-order"}
    assert not failed(check(with_faults(tmp_path, talk, (rule, "leaf2:h2->h2:eth1"))))


HELD_BACK = '{{name: x, links: "*->*", loss: 2%, reorder: {} by {}}}'
MANY = {"size": "1MiB", "message": "128KiB"}
UPLINK = "leaf1->h1 h1->leaf1"


@pytest.mark.parametrize("transport", ["srnic"])
def test_an_answer_that_is_held_back_behind_the_capture_tells_the_sender_later(tmp_path, transport):
    wanted = MANY | {
        "link": "{rate: 100Gbit, delay: 1us}",
        "faults": HELD_BACK.format("20%", "200us"),
    }
    verdicts = check(run(tmp_path, UPLINK, transport=transport, **wanted))
    assert not failed(verdicts)
    assert verdicts["sr.only-holes"].checked > 200


@pytest.mark.parametrize("transport", ["irn"])
def test_answers_that_overtake_each_other_may_do_so_behind_the_capture(tmp_path, transport):
    jitter = "{rate: 10Gbit, delay: 100us 90us distribution pareto}"
    wanted = MANY | {"link": jitter, "faults": HELD_BACK.format("5%", "20ms")}
    verdicts = check(alone(run(tmp_path, UPLINK, transport=transport, **wanted)))
    assert not failed(verdicts)
    assert "overtook each other" in verdicts["sr.only-holes"].note


# ---------------------------------------------------------------- long round trips

FAR = "{rate: 10Gbit, delay: 20ms}"  # 160 ms there and back


def test_defaults_are_no_bounds_where_round_trips_are_long(tmp_path):
    wanted = {
        "transport": "{name: csa_ud, framing: uc_immediate}",
        "message": "2KiB",
        "size": "256KiB",
        "faults": '{name: x, links: "leaf*->spine*", loss: 20%}',
    }
    directory = run(tmp_path, link=FAR, seed=33, **wanted)
    verdicts = check(directory)
    assert not failed(verdicts)
    assert not verdicts["csa.nack"].note  # the run tells its timers
    manifest = directory / "manifest.json"
    text = manifest.read_text()
    for old, new in RENAMED_TIMING.items():
        assert f'"{new}"' in text
        text = text.replace(f'"{new}"', f'"{old}"')
    manifest.write_text(text)
    assert check(directory)["csa.control-share"] == verdicts["csa.control-share"]
    verdicts = check(alone(directory))
    assert not failed(verdicts)
    assert "long round trips" in verdicts["csa.nack"].note


def test_a_timer_may_run_for_long_where_round_trips_are(tmp_path):
    """The deadline ends the run, and the capture, before a packet that was lost is sent again."""
    faults = '{name: x, links: "*->*", loss: 5%}'
    wanted = {"transport": "srnic", "message": "2KiB", "size": "256KiB", "faults": faults}
    verdicts = check(alone(run(tmp_path, link=FAR, seed=2, **wanted)))
    assert not failed(verdicts)
    assert "long round trips" in verdicts["sr.repaired"].note


def test_a_bitmap_may_be_acted_on_for_long_where_round_trips_are(tmp_path):
    jitter = "{rate: 10Gbit, delay: 40ms 39ms distribution pareto reorder allow}"
    wanted = {"size": "256KiB", "message": "16KiB", "faults": HELD_BACK.format("5%", "20ms")}
    verdicts = check(alone(run(tmp_path, transport="ud_rto", link=jitter, **wanted)))
    assert not failed(verdicts)
    assert "long round trips" in verdicts["sr.only-holes"].note
