# SPDX-License-Identifier: GPL-2.0-or-later
"""Knobs of transports: what each one changes on the wire, and what is said of a wrong one."""

import dataclasses
import json
import re

import numpy as np
import pytest

from softroce_lab.errors import UserError, ibv_wc_status
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec, virtual
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.hosts import process
from softroce_lab.experiment.hosts.settings import HostSettings
from softroce_lab.experiment.hosts.tuning import on_machine
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.paths import PROJECT_ROOT
from softroce_lab.telemetry import capture_file
from softroce_lab.transports import knobs, registry
from softroce_lab.transports.defaults import MILLISECOND_NS, Timing

EXPERIMENT = """\
name: knobs
topology: {generator: {kind: star, hosts: 2, access: {rate: 100Gbit, delay: 50us}}}
transports: [csa_ud]
workload: {kind: point-to-point, bytes: 1MiB, message: 32KiB}
depth: 32
"""
SINGLE = "workload={kind: point-to-point, bytes: 1kB}"  # one message of one packet
WAITS = {"irn", "srnic", "ud_rto", "sdr_sr", "sdr_sr_nack"}
_DATA_BYTES = 500  # reports and control messages are shorter


def of(*changes, clock="virtual"):
    source = yaml_source.parse(EXPERIMENT, "x.yaml")
    texts = [*changes, f"clock={clock}"]
    return spec.of(spec.with_overrides(source, [spec.parse_override(each) for each in texts]))


def run(tmp_path, entry, *changes):
    """The run, and the data packets of its capture: those that enter h1's link, and h2's."""
    wanted = Wanted(("h1->s1", "s1->h2"), 0, tmp_path / "trace.pcapng")
    experiment = of(f"transports=[{entry}]", *changes)
    found = virtual.run(experiment, experiment.transports[0], 1, lambda _: None, wanted)
    packets = capture_file.read(tmp_path / "trace.pcapng").packets
    data = packets[packets["length"] > _DATA_BYTES]
    return found, data[data["interface"] == 0], data[data["interface"] == 1]


def most_between(left, arrived):
    """Packets that have entered one link and not yet the other, at most."""
    times = np.concatenate((left["time_ns"], arrived["time_ns"])).astype(np.int64)
    steps = np.repeat((1, -1), (len(left), len(arrived)))
    return int(np.cumsum(steps[np.lexsort((steps, times))]).max())


# ---------------------------------------------------------------- what each one changes


@pytest.mark.parametrize("name", registry.transports())
@pytest.mark.parametrize("window", [1, 100])
def test_no_more_packets_are_in_flight_than_the_window(tmp_path, name, window):
    found, left, arrived = run(tmp_path, f"{{name: {name}, window: {window}}}")
    assert found.verdict == "passed"
    assert most_between(left, arrived) == window
    assert found.facts["window_packets"] == window


@pytest.mark.parametrize("retries", [0, 2])
def test_a_queue_pair_gives_up_after_so_many_timeouts(tmp_path, retries):
    cut = 'faults=[{name: cut, links: "h1->s1", loss: blackout}]'
    entry = f"{{name: rc, retry_count: {retries}}}"
    found, left, _ = run(tmp_path, entry, SINGLE, cut)
    assert found.messages["status"].tolist() == [int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)]
    assert len(left) == 1 + retries


@pytest.mark.parametrize("name", registry.transports(registry.Kind.SESSION))
@pytest.mark.parametrize("retries", [2])
def test_a_policy_gives_a_message_up_after_so_many_retransmissions(tmp_path, name, retries):
    """The peer is alive: control packets pass, and data packets and parity never do."""
    cut = 'faults=[{name: cut, links: "h1->s1", loss: 100%, only: [data, parity]}]'
    entry = f"{{name: {name}, retry_count: {retries}, framing: ud}}"
    found, left, _ = run(tmp_path, entry, SINGLE, cut)
    assert found.messages["status"].tolist() == [int(ibv_wc_status.IBV_WC_RETRY_EXC_ERR)]
    assert np.count_nonzero(left["lab_index"] == 0) == 1 + retries  # not sdr_ec's parity


@pytest.mark.parametrize(("name", "waits_ns"), [
    *((name, MILLISECOND_NS) for name in sorted(WAITS)), ("rc", 4096 << 8),
])  # fmt: skip
def test_the_first_retransmission_comes_after_the_timeout(tmp_path, name, waits_ns):
    """RC's timeout is a power of two, the next one that is no shorter."""
    cut = 'faults=[{name: cut, links: "h1->s1", loss: blackout, at: 0s, for: 200us}]'
    found, left, _ = run(tmp_path, f"{{name: {name}, timeout: 1ms}}", SINGLE, cut)
    assert found.verdict == "passed"
    first_ns, again_ns = left["time_ns"].astype(np.int64)
    assert waits_ns <= again_ns - first_ns <= 1.001 * waits_ns


def test_a_window_that_cannot_act_is_noted():
    wide = of("transports=[{name: rc, window: 5000}, {name: irn, window: 16}, csa_ud]")
    (note,) = experiment_run.notes(wide)
    assert note == (
        "rc+window=5000: a window of 5,000 packets has no effect, the congestion window has"
        " 1,752 at most"
    )


# ---------------------------------------------------------------- where they are carried


@pytest.mark.parametrize("name", sorted(WAITS))
def test_a_timeout_may_be_the_measured_one(name):
    (chosen,) = of(f"transports=[{{name: {name}, timeout: measured}}]").transports
    assert chosen.label == f"{name}+timeout=measured"
    assert chosen.knobs == knobs.Knobs(timeout_measured=True)
    assert chosen.knobs.engine() == {"timeout_measured": True}
    assert chosen.knobs.timing(Timing()) == Timing(rto_rttvar_weight=4)
    assert Transport.of(chosen.document()) == chosen


def test_a_host_of_the_real_clock_gets_them():
    (irn,) = of("transports=[{name: irn, paths: 3, retry_count: 3, timeout: 10ms}]").transports
    tuning = on_machine(irn, of().plan(1), most_window_packets=7)
    settings = HostSettings(
        node="h1", interface="eth1", ifindex=1, uplink=0, address=0x0A000001, mac=1, gateway_mac=2,
        xsks_map="", queues_map="", transport=irn.document(), epoch_ns=0, qkey=1,
        tuning=json.loads(json.dumps(dataclasses.asdict(tuning))),
    )  # fmt: skip
    config = process._configure(settings).messages
    assert (config.paths, config.timeout_ns) == (3, 10 * MILLISECOND_NS)
    assert config.timing.most_attempts == 4
    assert config.window_packets == 7


def test_a_policy_of_ones_own_has_those_of_the_engine_and_the_session():
    reference = PROJECT_ROOT / "examples/transports/nack.py:Nack"
    name = f"{reference}".rpartition(":")[0]
    (own,) = of(f"transports=[{{policy: '{name}:{_class_of(name)}', window: 9}}]").transports
    names = ["window", "paths", "schedule", "retry_count"]
    assert [knob.name for knob in own.entry.knobs] == names
    assert own.knobs.window == 9


def _class_of(file):
    with open(file) as text:
        return re.search(r"^class (\w+)\(MessagePolicy\)", text.read(), re.MULTILINE)[1]


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ("{name: rc, paths: 2}",
         "x.yaml:3:25: rc has no knob 'paths'\n  hint: it has window, retry_count, timeout"),
        ("{name: csa_ud, timeout: 1ms}",
         "x.yaml:3:29: csa_ud has no knob 'timeout'\n"
         "  hint: it has window, paths, schedule, retry_count"),
        ("{name: rc, window: 0}",
         "x.yaml:3:33: window: 0 is out of bounds\n  hint: from 1 to 8388607"),
        ("{name: csa_ud, window: 1048577}", "x.yaml:3:37: window: 1048577 is out of bounds"),
        ("{name: csa_ud, window: true}", "x.yaml:3:37: window: True is not a whole number"),
        ("{name: csa_ud, window: many}", "x.yaml:3:37: window: 'many' is not a whole number"),
        ("{name: csa_ud, window: [1]}", "x.yaml:3:37: window: [1] is not a whole number"),
        ("{name: csa_ud, paths: 17}", "paths: 17 is out of bounds\n  hint: from 1 to 16"),
        ("{name: rc, retry_count: 8}", "retry_count: 8 is out of bounds\n  hint: from 0 to 7"),
        ("{name: irn, retry_count: 0}", "retry_count: 0 is out of bounds\n  hint: from 1 to 250"),
        ("{name: irn, timeout: 3}", "x.yaml:3:35: timeout: 3 has no unit"),
        ("{name: irn, timeout: 11s}", "timeout: 11 s is out of bounds\n  hint: from 1 us to 10 s"),
        ("{name: rc, timeout: measured}", "x.yaml:3:34: timeout: 'measured'"),
        ("{name: irn, timeout: soon}", "or 'measured'"),
        ("{name: rc, timeout: 1us}", "timeout: 1 us is out of bounds"),
        ("{name: irn, windw: 3}", "unknown key 'windw'\n  hint: did you mean 'window'?"),
        ("{name: irn, window: }", "'window' has no value"),
        ("rc, rc", "two transports are called 'rc'"),
        ("{name: rc, window: 9}, {name: rc, window: 9}",
         "two transports are called 'rc+window=9'"),
    ],
)  # fmt: skip
def test_a_mistake_is_pointed_at(entry, complaint):
    text = EXPERIMENT.replace("[csa_ud]", f"[{entry}]")
    with pytest.raises(UserError) as caught:
        spec.of(yaml_source.parse(text, "x.yaml"))
    assert complaint in str(caught.value)
