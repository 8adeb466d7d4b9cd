# SPDX-License-Identifier: GPL-2.0-or-later
"""Traffic on other rails than the first, on both clocks, and NICs that fail under it."""

import json
import secrets

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import real, spec, virtual
from softroce_lab.experiment.hosts.settings import HostOptions
from softroce_lab.fabric import lab as fabric
from softroce_lab.inputs import yaml_source
from tests.cli.test_app import lab as command
from tests.patience import emulator_drops, patient, undisturbed

FILE = """\
name: NAME
topology: {generator: {kind: dual-rail, hosts_per_leaf: 4, rails: 3, access: ACCESS}}
transports: TRANSPORTS
workload:
  kind: jobs
  jobs:
    - {name: a, workload: {kind: all-to-all, hosts: [h1, h3], bytes: 64KiB A}}
    - {name: b, workload: {kind: all-to-all, hosts: [h2, h4], bytes: 64KiB}}
payload: verify
clock: CLOCK
faults: FAULTS
"""
FAST = "{rate: 100Gbit, delay: 1us}"
SENT = ("tx_data", "tx_control", "tx_report", "tx_probe", "tx_clear", "tx_cnp", "tx_connected")


def text_of(
    *, a=", rail: 3", size="64KiB", transports="[csa_ud]", access=FAST, clock="virtual", faults="[]"
):
    text = FILE.replace("NAME", f"t{secrets.token_hex(3)}").replace("CLOCK", clock)
    text = text.replace("64KiB", size)
    text = text.replace("ACCESS", access).replace("TRANSPORTS", transports)
    return text.replace(" A}", f"{a}}}").replace("FAULTS", faults)


def of(**options):
    return spec.of(yaml_source.parse(text_of(**options), "rails.yaml"))


def sent(run):
    """Packets by directed link of a host, without those that carried none."""
    found = {link["name"]: link["sent"] for link in run.links if link["name"].startswith("h")}
    return {name for name, count in found.items() if count}


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "irn", "sdr_sr", "oracle"])
def test_a_job_uses_its_rail(transport):
    wanted = of(transports=f"[{transport}]")
    run = virtual.run(wanted, wanted.transports[0], 1, lambda _: None)
    assert run.verdict == "passed", run.reasons
    assert run.verified is True
    assert sent(run) == {"h1->leaf3-1", "h3->leaf3-1", "h2->leaf1-1", "h4->leaf1-1"}


@pytest.mark.parametrize("manner", ["down", "grey"])
def test_a_nic_that_fails_stops_its_job_alone(manner):
    wanted = of(transports="[rc]", faults=f"['nic {manner} h1:eth3 at 5us']")
    run = virtual.run(wanted, wanted.transports[0], 1, lambda _: None)
    assert run.verdict == "failed"
    lost = run.messages["status"] != 0
    assert {0, 2} == set(run.messages["source"][lost].tolist())
    assert {"nic-" + manner + "-h1-eth3-at-5us"} == set(run.events["rule"].tolist())


@pytest.mark.parametrize(
    ("rail", "error"),
    [
        ("4", "rails.yaml:7:83: h1 has 3 rails, not a rail 4\n  hint: such as topology: dual-rail"),
        ("0", "rails.yaml:7:83: rail 0 is below 1"),
        ("9", "rails.yaml:7:83: rail 9 is above 8"),
        ("eth2", "rails.yaml:7:83: expected a whole number, found 'eth2'"),
    ],
)
def test_mistakes_have_their_place(rail, error):
    with pytest.raises(UserError) as caught:
        of(a=f", rail: {rail}")
    assert str(caught.value).startswith(error)


def test_a_dry_run_shows_rails_and_faults(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text(text_of(faults="['nic flap h1:eth3 for 1ms every 5ms']"))
    shown = command("run", str(file), "--dry-run").stdout
    assert "  rail 3: h1, h3\n" in shown
    assert "  fault down at 0s for 1ms every 5ms  (nic-flap-h1-eth3-" in shown
    document = json.loads(command("run", str(file), "--dry-run", "--json").stdout)
    assert document["rails"] == {"h1": 3, "h3": 3}
    (rule,) = document["rules"]
    assert rule["fault"] == "down at 0s for 1ms every 5ms"


# ---------------------------------------------------------------- several at once


def on_a_lab(wanted, options=HostOptions()):  # noqa: B008 - frozen
    """A run on the real clock: again where a busy machine had the emulator lose frames."""
    made = fabric.up(wanted.plan(1), ephemeral=True)
    try:
        return undisturbed(
            lambda: real.run(wanted, wanted.transports[0], 1, lambda _: None, made, options),
            emulator_drops,
        )
    finally:
        made.down()


def uplinks(*hosts, leaves=(1, 2, 3)):
    return {f"{host}->leaf{leaf}-1" for host in hosts for leaf in leaves}


@pytest.mark.parametrize("transport", ["csa_ud", "rc", "irn", "sdr_ec", "oracle"])
def test_messages_take_the_rails_of_a_host_in_turn(transport):
    """Three rails of one job, two of the other, whose first is the last one."""
    text = text_of(a=", message: 4KiB, rails: 3", transports=f"[{transport}]")
    text = text.replace("bytes: 64KiB}", "bytes: 64KiB, message: 4KiB, rail: 3, rails: 2}")
    wanted = spec.of(yaml_source.parse(text, "rails.yaml"))
    run = virtual.run(wanted, wanted.transports[0], 1, lambda _: None)
    assert run.verdict == "passed", run.reasons
    assert run.verified is True
    assert sent(run) == uplinks("h1", "h3") | uplinks("h2", "h4", leaves=(3, 1))


def test_losses_of_each_rail_have_their_hosts_and_their_counts():
    faults = "[{name: loss, links: 'h*<->leaf*', loss: random 3%}]"
    wanted = of(a=", message: 4KiB, rails: 3", faults=faults)
    run = virtual.run(wanted, wanted.transports[0], 1, lambda _: None, with_acts=True)
    assert run.verdict == "passed", run.reasons
    retransmitted = sum(each["tx_retransmitted"] for each in run.counters.values() if each)
    assert retransmitted == run.messages["retransmitted"].sum() > 0
    hosts = {host for part in run.recoveries for host in part["host"].tolist()}
    assert "" not in hosts
    assert len(hosts) > 1


@pytest.mark.parametrize("transport", ["csa_ud", "rc"])
def test_several_rails_on_a_lab(transport):
    slow = "{rate: 200Mbit, delay: 100us}"
    wanted = of(
        a=", message: 4KiB, rails: 2", clock="real", access=slow,
        transports=f"[{patient(transport)}]",
    )  # fmt: skip
    run = on_a_lab(wanted)
    assert run.verdict == "passed", run.reasons
    assert run.verified is True
    assert sent(run) == uplinks("h1", "h3", leaves=(1, 2)) | {"h2->leaf1-1", "h4->leaf1-1"}
    assert emulator_drops(run) == 0
    assert {each["node"] for each in run.facts["ports"]} >= {"h1", "h1:eth2", "h3:eth2", "h2"}
    for host in ("h1", "h2", "h3", "h4"):  # all that left a host, by whatever rail
        left = sum(link["sent"] for link in run.links if link["name"].startswith(f"{host}->"))
        assert sum(run.counters[host][name] for name in SENT) == left
    far = [each["remote_address"] for each in run.stats["h1:eth2"]["qps"]]
    assert far == (["10.1.0.3"] if transport == "rc" else [])


@pytest.mark.parametrize(("transport", "ip_version"), [("rc", 6), ("csa_ud", 4)])
def test_what_is_done_about_losses_of_each_rail_is_recorded_on_a_lab(transport, ip_version):
    """Whatever the IP version: hosts are known by their IPv4 addresses, one a rail."""
    slow = "{rate: 200Mbit, delay: 100us}"
    # Not periodic: `rc` that goes back over a multiple of the period loses the same packet again.
    faults = "[{name: loss, links: 'h*<->leaf*', loss: random 5%}]"
    wanted = of(
        a=", message: 4KiB, rails: 2", size="512KiB", clock="real", access=slow,
        transports=f"[{patient(transport)}]", faults=faults,
    )  # fmt: skip
    run = on_a_lab(wanted, HostOptions(ip_version=ip_version))
    assert run.verdict == "passed", run.reasons
    (found,) = run.recoveries
    names = {"10.0.0.1": "h1", "10.0.0.2": "h2", "10.0.0.3": "h3", "10.0.0.4": "h4",
             "10.1.0.1": "h1", "10.1.0.3": "h3"}  # fmt: skip
    again = found["event"] == "sent_again"
    assert set(found["src"][again].tolist()) == names.keys()
    assert [names[each] for each in found["src"][again]] == found["host"][again].tolist()
    retransmitted = sum(each.get("tx_retransmitted", 0) + each.get("tx_connected_retransmitted", 0)
                        for each in run.counters.values())  # fmt: skip
    assert again.sum() == retransmitted > 0
    ends = {(each["source"], each["destination"]) for each in run.facts["queue_pairs"]}
    rails = {tuple(end >> 16 & 255 for end in each) for each in ends}
    assert rails == ({(0, 0), (1, 1)} if transport == "rc" else set())
