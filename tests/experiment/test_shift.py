# SPDX-License-Identifier: GPL-2.0-or-later
"""The transport `shift` in experiments: NICs die, jobs go on over another rail, on both clocks."""

import json
import secrets
import subprocess
import threading
import time

import pyarrow.parquet as pq
import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import real, spec, virtual
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.reporter import Silent
from softroce_lab.fabric import lab as fabric
from softroce_lab.inputs import yaml_source
from softroce_lab.telemetry import capture_file, transitions
from tests.check.plant import check, failed
from tests.cli.test_app import lab as command
from tests.patience import emulator_drops, undisturbed

FILE = """\
name: NAME
topology: {generator: {kind: dual-rail, leaves: 1, spines: 1, hosts_per_leaf: 3,
                       access: {rate: 10Gbit, delay: 1us}}}
transports: [TRANSPORT]
workload: {kind: ring-all-reduce, bytes: 192KiB, message: 16KiB, repeat: 20, hosts: 3 MORE}
faults: FAULTS
payload: PAYLOAD
clock: CLOCK
deadline: DEADLINE
"""
FAST = "{name: shift, timeout: 100us, retry_count: 2, label: shift}"
DIES = '["nic down h1:eth1 at 1ms for 2ms"]'


def of(
    transport=FAST, faults=DIES, clock="virtual", payload="verify", more="", repeat=20,
    deadline="5s",
):  # fmt: skip
    text = FILE.replace("DEADLINE", deadline)
    text = text.replace("NAME", f"t{secrets.token_hex(3)}").replace("TRANSPORT", transport)
    text = text.replace("FAULTS", faults).replace("CLOCK", clock).replace("PAYLOAD", payload)
    text = text.replace(" MORE", more).replace("repeat: 20", f"repeat: {repeat}")
    return spec.of(yaml_source.parse(text, "shift.yaml"))


def run(experiment, seed=1):
    return virtual.run(experiment, experiment.transports[0], seed, lambda _: None)


def after(found):
    """The states that senders entered."""
    return [row["after"] for row in found.transitions if transitions.is_step(row)]


def test_a_nic_dies_and_comes_back():
    found = run(of(repeat=80))
    assert found.verdict == "passed", found.reasons
    assert found.verified is True
    figures = found.summary()["shift"]
    assert figures["failovers"] == figures["failbacks"] == 4  # both ends of two connections
    assert figures["failed"] == 0
    assert figures["resubmitted"] > 0
    ends = {(row["host"], row["peer"]) for row in found.transitions}
    assert ends == {("h1", "h2"), ("h2", "h1"), ("h1", "h3"), ("h3", "h1")}
    assert after(found).count("WaitDrained") == 4


def test_rc_stops_where_shift_goes_on():
    found = run(of("{name: rc, timeout: 100us, retry_count: 2}"))
    assert found.verdict == "failed"
    assert any("RETRY_EXC" in reason for reason in found.reasons)
    assert not found.transitions


def test_what_is_done_about_losses_has_its_ends_on_both_rails():
    """Of data and of control messages; and no message is claimed to be known by a PSN."""
    lossy = DIES.replace("[", '[{name: lossy, ports: "h*:eth2", loss: random 3%}, ')
    experiment = of("{name: shift, timeout: 100us, retry_count: 6, label: shift}", lossy)
    found = virtual.run(experiment, experiment.transports[0], 1, lambda _: None, with_acts=True)
    assert found.verdict == "passed", found.reasons
    assert found.transitions
    names = {f"10.{rail}.0.{host}": f"h{host}" for rail in range(2) for host in range(1, 4)}
    kinds = set()
    for part in found.recoveries:
        rows = zip(*(part[name].tolist() for name in ("event", "host", "src", "dst")), strict=True)
        for event, host, source, destination in rows:
            acts = destination if event == "nak_sent" else source
            assert names[acts] == host or event == "lost"
            assert source[:5] == destination[:5]  # on one rail
            kinds.add((event, source[:5]))
    assert kinds >= {(event, f"10.{n}.") for event in ("timeout", "sent_again") for n in range(2)}
    assert not found.facts["queue_pairs"]


@pytest.mark.parametrize("payload", ["none", "verify"])
def test_the_rail_of_the_workload_is_the_default_one(payload):
    """The second rail dies; the backup is the one behind it, here the first."""
    found = run(of(faults='["nic down h1:eth2 at 1ms for 2ms"]', more=", rail: 2", payload=payload))
    assert found.verdict == "passed", found.reasons
    assert found.verified is (True if payload == "verify" else None)
    assert after(found).count("Fallback") >= 4
    sent = {link["name"]: link["sent"] for link in found.links}
    assert sent["h1->leaf1-1"] > 0
    assert sent["h1->leaf2-1"] > 0


@pytest.mark.parametrize(
    "fault", ["port down leaf1-1:h1 at 1ms for 2ms", "port grey h1:eth1 at 1ms for 2ms",
              "nic flap h1:eth1 at 500us for 1ms every 3ms", "nic down h2:eth1 at 1us for 1ms"],
)  # fmt: skip
def test_other_failures(fault):
    found = run(of(faults=json.dumps([fault]), repeat=40))
    assert found.verdict == "passed", found.reasons
    assert found.verified is True


def test_both_rails_dead_is_an_error_that_ends():
    both = '["nic down h1:eth1 at 1ms", "nic down h1:eth2 at 1ms"]'
    found = run(of(faults=both))
    assert found.verdict == "failed"
    assert any("RETRY_EXC" in reason for reason in found.reasons)
    assert "Failed" in after(found)


# ---------------------------------------------------------------- what is refused


def test_a_host_with_one_rail_is_refused_with_its_place():
    text = "name: x\ntopology: two-hosts\ntransports: [shift]\nworkload: {kind: incast, bytes: 1kB}"
    with pytest.raises(UserError, match="h1 has one rail: shift needs another") as caught:
        spec.of(yaml_source.parse(text, "x.yaml"))
    assert caught.value.line == 2
    plain = spec.of(yaml_source.parse(text.replace("[shift]", "[rc]"), "x.yaml"))
    with pytest.raises(UserError, match="one rail"):
        spec.with_transports(plain, ["shift"])


# ---------------------------------------------------------------- what is kept


def test_the_run_directory_and_the_capture_have_the_transitions(tmp_path):
    experiment = of(faults='["nic down h1:eth1 at 1ms for 300us"]', repeat=30)
    outcome = experiment_run.run(experiment, Silent(), under=tmp_path, capture=Wanted(("ends",), 0))
    rows = pq.read_table(outcome.directory / "shift.parquet").to_pylist()
    (found,) = outcome.runs
    assert len(rows) == len(found.transitions)
    assert [row["time_ns"] for row in rows] == sorted(row["time_ns"] for row in rows)
    assert set(rows[0]) == {"transport", "seed", *transitions.COLUMNS}
    manifest = json.loads((outcome.directory / "manifest.json").read_text())
    assert manifest["runs"][0]["shift"] == found.summary()["shift"]
    trace = outcome.directory / "trace.pcapng"
    comments = "\n".join(capture_file.read(trace).comments)
    for row in rows:
        assert transitions.line(row) in comments
    verdicts = check(trace)
    assert not failed(verdicts)
    assert verdicts["shift.once"].checked > 0
    moves = found.summary()["shift"]
    assert verdicts["shift.count"].checked == moves["failovers"] + moves["failbacks"] > 0


# ---------------------------------------------------------------- the real clock


def test_on_the_real_clock_and_in_lab_inspect(nothing_left):
    # A third of a second of silence is a dead NIC: a busy machine may stand still for a while.
    slow = "{name: shift, timeout: 64ms, retry_count: 4, label: shift}"
    experiment = of(slow, '["nic down h1:eth1 at 300ms"]', "real", more=", every: 40ms",
                    repeat=60, deadline="20s")  # fmt: skip
    found, shown = undisturbed(lambda: looked_at(experiment), lambda of: emulator_drops(of[0]))
    assert found.verdict == "passed", found.reasons
    assert found.verified is True
    assert after(found).count("Fallback") == 4
    assert all(300 * 10**6 < row["time_ns"] < 20 * 10**9 for row in found.transitions)
    assert all(0 <= each["ago_ns"] < 20 * 10**9 for each in shown)
    assert not emulator_drops(found)
    assert {each["node"] for each in found.facts["ports"]} >= {"h1", "h1:eth2"}
    both = [found.stats[name]["hw_counters"]["sent_pkts"] for name in ("h1", "h1:eth2")]
    assert found.counters["h1"]["tx_connected"] == sum(both) > min(both) > 0
    states = {(each["peer"], each["sender"], each["receiver"]) for each in shown}
    assert states == {("h2", "Fallback", "Fallback"), ("h3", "Fallback", "Fallback")}


def looked_at(experiment):
    """Its run on a lab, and what `lab inspect` shows meanwhile."""
    shown = []
    with fabric.owned(experiment.plan(1), mode="auto", say=lambda _: None) as lab:
        looking = threading.Thread(target=look, args=[lab.plan.name, shown])
        looking.start()
        found = real.run(experiment, experiment.transports[0], 1, lambda _: None, lab)
        looking.join()
        assert not list((lab.directory / "stats").glob("*.shift"))
    return found, shown


def settled(shown):
    sides = [each[side] for each in shown for side in ("sender", "receiver")]
    return len(shown) == 2 and set(sides) == {"Fallback"}


def look(name, shown):
    """What `lab inspect` shows of h1, once both of its queue pairs have moved."""
    until = time.monotonic() + 20
    while time.monotonic() < until and not settled(shown):
        try:
            result = command("inspect", "node", "h1", "--lab", name, "--json")
            shown[:] = json.loads(result.stdout)["node"]["shift"]
        except (json.JSONDecodeError, subprocess.SubprocessError):
            pass
        time.sleep(0.1)
