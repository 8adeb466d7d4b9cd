# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab fault`: set, show, clear and apply, on a lab that is up."""

import json
import os
import signal
import time

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode

PROFILE = """
faults:
  - {name: noise, links: "s1->h2", corrupt: 1%}
"""
TIMELINE = """
faults:
  - {name: flap, links: "s1<->h2", down: true, at: 1s, for: 1s}
"""
MORE_TIME = """
faults:
  - {name: off, links: "s1<->h1", down: true, at: 3000s}
"""


@pytest.fixture
def faulty(up):
    """A lab whose faults are gone after the test."""
    yield up
    up.fault("clear")


@pytest.fixture
def profiles(tmp_path):
    for name, rules in (("flap", TIMELINE), ("noise", PROFILE), ("more", MORE_TIME)):
        (tmp_path / f"{name}.yaml").write_text(rules)
    return lambda name: str(tmp_path / f"{name}.yaml")


def shown(lab, *where):
    return lab.json("fault", "show", *where, "--lab", lab.name)["faults"]


def words(lab, *where):
    return [(each["link"], each["text"]) for each in shown(lab, *where)]


def test_what_is_named_is_set_and_cleared_and_nothing_else(faulty):
    fault = faulty.fault
    fault("set", "s1->h2", "loss", "1%", "delay", "1ms")
    result = fault("set", "s1->h2", "loss", "gemodel", "1%", "25%")
    assert result.stdout.splitlines() == [
        "replaced loss random 1%  (live:loss) on s1->h2",
        "set      loss gemodel 1% 25%  (live:loss) on s1->h2",
    ]
    assert "nothing changed" in fault("clear", "h1->s1").stdout
    fault("set", "h2->s1", "loss", "2%")
    assert set(words(faulty)) == {
        ("s1->h2", "loss gemodel 1% 25%"), ("s1->h2", "delay 1ms"), ("h2->s1", "loss random 2%"),
    }  # fmt: skip
    fault("clear", "s1->h2", "loss")
    assert words(faulty, "s1->h2") == [("s1->h2", "delay 1ms")]
    fault("clear", "h2->s1")
    assert words(faulty) == [("s1->h2", "delay 1ms")]
    assert fault("set", "s1->h2", "reorder", "5%").returncode == 0
    assert fault("clear", "s1->h2", "delay").returncode == 2  # which reorder needs
    assert len(words(faulty)) == 2
    assert "no faults" in fault("clear").stdout
    assert "no faults" in fault("show").stdout


def test_a_profile_is_added(faulty, profiles):
    faulty.fault("set", "s1->h2", "loss", "1%")
    document = json.loads(faulty.fault("apply", profiles("noise"), "--json").stdout)
    assert [each["rule"] for each in document["faults"]] == ["live:loss", "noise"]
    again = faulty.fault("apply", profiles("noise"))
    assert (again.returncode, "applied already" in again.stderr) == (2, True)
    faulty.fault("clear")
    assert faulty.fault("apply", "nic down h1:eth1").returncode == 0
    assert words(faulty) == [("h1->s1", "down"), ("s1->h1", "down")]
    assert "nic-down-h1-eth1" in faulty.fault("show").stdout


def test_a_timeline_of_links_that_go_down_needs_a_control_plane(lab, profiles):
    def refused(name):
        result = lab.fault("apply", profiles(name))
        assert result.returncode == 2
        return result.stderr

    assert lab.up().returncode == 0
    told = refused("flap")
    assert "by the timeline of flap" in told
    assert f"lab up FILE --faults {profiles('flap')}" in told
    assert words(lab) == []
    lab.run("down", lab.name)
    assert lab.up("--faults", profiles("flap")).returncode == 0
    for name in ("noise", "more"):
        assert lab.fault("apply", profiles(name)).returncode == 0
    for link, word in (("*", "corrupt"), ("h1", "down")):
        assert lab.fault("clear", link, word).returncode == 0
    end(lab, "routes")
    assert lab.fault("apply", profiles("noise")).returncode == 0  # others' timeline hinders nobody
    assert "by the timeline of off" in refused("more")


def test_achieved_stands_beside_requested(faulty):
    faulty.fault("set", "s1->h2", "loss", "periodic", "4", "delay", "2ms")
    faulty.ping("-c", "20", "-W", "50ms")
    loss, delay = shown(faulty)
    assert loss["requested"] == {"rate": 0.25, "mean_run": 1.0}
    assert loss["achieved"]["seen"] == 20
    assert (loss["achieved"]["hits"], loss["achieved"]["rate"]) == (5, 0.25)
    assert delay["requested"] == {"delay_ns": 2_000_000, "jitter_ns": 0}
    assert delay["achieved"]["released"] == 15
    assert delay["achieved"]["residence_ns"]["p50"] > 1_800_000
    assert delay["achieved"]["percentile_error"] == 1 / 32
    text = faulty.fault("show").stdout
    assert "5 of 20 packets: 25 % of 25 %" in text
    assert "15 frames; time on the link p50" in text
    assert "; percentiles to 3.125 %" in text
    assert "p99.9" not in text  # of 15


def test_a_link_goes_down_and_up(faulty):
    faulty.fault("set", "h2", "down")
    assert "no packet lost" in faulty.fault("show", "s1->h2").stdout
    assert faulty.ping("-c", "1", "-W", "50ms").returncode == 1
    faulty.fault("set", "h2", "up")
    assert words(faulty) == []
    assert faulty.ping("-c", "1").returncode == 0


def test_named_packets_are_one_line(faulty):
    faulty.fault("set", "s1->h2", "drop", "message", "0", "packet", "0-99,200")
    assert faulty.fault("show").stdout.splitlines()[1:] == [
        "  drop 101 packets: message 0 packet 0-99,200  (live:drop, key identity)",
        "    no packet lost",
    ]
    assert len(shown(faulty)) == 101


def test_what_cannot_be_is_a_mistake_of_the_user_s(faulty):
    for arguments, complaint in (
        (("set", "s1->h2", "loss", "5"), "5"),
        (("set", "s1->h2", "los", "5%"), "unknown fault 'los'"),
        (("set", "s1->h2", "delay", "-5ms"), "-5ms"),
        (("set", "s1->h2", "delay", "1ms", "delay", "2ms"), "stands twice"),
        (("set", "s1->h2", "reorder", "5%"), "delay"),
        (("set", "s1->h2", "limit", "100"), "rate"),
        (("set", "s1->h9", "loss", "5%"), "matches no link"),
        (("set", "s1->h2"), "FAULT"),
        (("clear", "s1->h2", "los"), "unknown fault 'los'"),
        (("clear", "s1->h9"), "matches no link"),
        (("show", "s1->h9"), "matches no link"),
        (("apply", "no-such-profile"), "no-such-profile"),
        (("apply", "nic dwn h1:eth1"), "did you mean 'down'?"),
        (("apply", "nic down s1:h1"), "no NIC of a host"),
        (("set", "s1->h2", "delay", "1000s"), "frames"),
    ):
        assert complaint in faulty.refused("fault", *arguments, "--lab", faulty.name), arguments
    assert "no lab called none" in faulty.refused("fault", "show", "--lab", "none")
    assert words(faulty) == []


def end(lab, role):
    """SIGKILL to the lab's process of this role."""
    processes = lab.json("ps", lab.name)["labs"][0]["processes"]
    (pid,) = (each["pid"] for each in processes if each["role"] == role)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)


def test_a_dead_wire_stage_is_told_of_and_hides_only_its_own_part(lab):
    assert lab.up().returncode == 0
    lab.fault("set", "s1->h2", "loss", "periodic", "2", "delay", "1ms", "rate", "1Gbit")
    lab.fault("set", "s1->h1", "loss", "periodic", "2")
    end(lab, "wire")
    lab.ping("-c", "4", "-W", "50ms")
    for arguments in ((), ("s1->h2",)):
        result = lab.fault("show", *arguments)
        assert result.returncode == 1
        assert "2 of 4 packets: 50 % of 50 %" in result.stdout
        assert result.stdout.count("unknown: the wire stage does not answer") == 2
        for told in ("wire stage died", "frames of s1->h2 are lost", f"lab down {lab.name}"):
            assert told in result.stderr
        assert "Traceback" not in result.stderr
    result = lab.fault("show", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert "wire stage died" in document["problem"]["what"]
    known = {(each["link"], each["word"]): each["achieved"] for each in document["faults"]}
    assert known["s1->h2", "loss"]["hits"] == 2
    assert known["s1->h2", "delay"] is known["s1->h2", "rate"] is None
    unshaped = lab.fault("show", "s1->h1", "--json")
    assert (unshaped.returncode, json.loads(unshaped.stdout)["problem"]) == (0, None)
    line, lost = (text for text in lab.run("ps").stdout.splitlines() if lab.name in text)
    assert line.split()[:2] == [lab.name, "damaged"]
    assert "the wire stage is dead" in lost
    result = lab.fault("set", "s1->h2", "delay", "2ms")
    assert (result.returncode, "wire stage died" in result.stderr) == (1, True)
    assert lab.fault("clear").returncode == 0  # what needs no wire stage goes on
    assert lab.ping("-c", "1").returncode == 0


def test_an_unknown_option_is_called_one():
    """The parser takes it for a word of the fault, because -5ms is one."""
    found = CliRunner().invoke(app, ["fault", "set", "s1->h2", "loss", "1%", "--name", "mine"])
    assert found.exit_code == ExitCode.USAGE
    assert "no such option: --name" in found.output
