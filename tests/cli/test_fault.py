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
def up(lab):
    """Two hosts, and `lab fault` with arguments."""
    assert lab.up().returncode == 0

    def fault(*arguments):
        return lab.run("fault", *arguments, "--lab", lab.name)

    return fault


def shown(up, *where):
    result = up("show", *where, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)["faults"]


def words(up, *where):
    return [(each["link"], each["text"]) for each in shown(up, *where)]


def test_what_is_named_is_set_and_nothing_else(up):
    up("set", "s1->h2", "loss", "1%", "delay", "1ms")
    result = up("set", "s1->h2", "loss", "gemodel", "1%", "25%")
    assert result.returncode == 0
    assert result.stdout.splitlines() == [
        "replaced loss random 1%  (live:loss) on s1->h2",
        "set      loss gemodel 1% 25%  (live:loss) on s1->h2",
    ]
    assert "nothing changed" in up("clear", "h1->s1").stdout
    assert words(up) == [("s1->h2", "loss gemodel 1% 25%"), ("s1->h2", "delay 1ms")]


def test_words_and_links_are_cleared(up):
    up("set", "s1<->h2", "loss", "1%", "corrupt", "1%")
    assert len(words(up)) == 4
    assert words(up, "s1->h2") == [("s1->h2", "loss random 1%"), ("s1->h2", "corrupt 1%")]
    up("clear", "s1->h2", "loss")
    assert words(up, "s1->h2") == [("s1->h2", "corrupt 1%")]
    up("clear", "h2->s1")
    assert words(up) == [("s1->h2", "corrupt 1%")]
    assert "no faults" in up("clear").stdout
    assert "no faults" in up("show").stdout


def test_a_profile_is_added(up, tmp_path):
    (tmp_path / "noise.yaml").write_text(PROFILE)
    up("set", "s1->h2", "loss", "1%")
    result = up("apply", str(tmp_path / "noise.yaml"), "--json")
    document = json.loads(result.stdout)
    assert [each["rule"] for each in document["faults"]] == ["live:loss", "noise"]
    again = up("apply", str(tmp_path / "noise.yaml"))
    assert again.returncode == 2
    assert "applied already" in again.stderr


def test_a_nic_fails_and_works_again(up):
    result = up("apply", "nic down h1:eth1")
    assert result.returncode == 0, result.stderr
    assert words(up) == [("h1->s1", "down"), ("s1->h1", "down")]
    assert "nic-down-h1-eth1" in up("show").stdout
    up("clear", "h1:eth1")
    assert words(up) == []


def test_a_timeline_of_links_that_go_down_needs_a_control_plane(up, tmp_path):
    (tmp_path / "flap.yaml").write_text(TIMELINE)
    result = up("apply", str(tmp_path / "flap.yaml"))
    assert result.returncode == 2
    assert "by the timeline of flap" in result.stderr
    assert f"lab up FILE --faults {tmp_path / 'flap.yaml'}" in result.stderr
    assert words(up) == []


def test_a_lab_with_such_a_timeline_takes_profiles(lab, tmp_path):
    for name, rules in (("flap", TIMELINE), ("noise", PROFILE), ("more", MORE_TIME)):
        (tmp_path / f"{name}.yaml").write_text(rules)
    assert lab.up("--faults", str(tmp_path / "flap.yaml")).returncode == 0

    def apply(name):
        return lab.run("fault", "apply", str(tmp_path / f"{name}.yaml"), "--lab", lab.name)

    for name in ("noise", "more"):
        assert apply(name).returncode == 0, apply(name).stderr
    assert lab.run("fault", "clear", "*", "corrupt", "--lab", lab.name).returncode == 0
    assert lab.run("fault", "clear", "h1", "down", "--lab", lab.name).returncode == 0
    end(lab, "routes")
    assert apply("noise").returncode == 0  # the timeline of others is no hindrance
    result = apply("more")
    assert result.returncode == 2
    assert "by the timeline of off" in result.stderr


def test_achieved_stands_beside_requested(lab, up):
    up("set", "s1->h2", "loss", "periodic", "4", "delay", "2ms")
    lab.run(
        "inspect",
        "path",
        "--ping",
        "h1",
        "h2",
        "--lab",
        lab.name,
        "-c",
        "20",
        "-i",
        "1ms",
        "-W",
        "50ms",
    )
    loss, delay = shown(up)
    assert loss["requested"] == {"rate": 0.25, "mean_run": 1.0}
    assert loss["achieved"]["seen"] == 20
    assert (loss["achieved"]["hits"], loss["achieved"]["rate"]) == (5, 0.25)
    assert delay["requested"] == {"delay_ns": 2_000_000, "jitter_ns": 0}
    assert delay["achieved"]["released"] == 15
    assert delay["achieved"]["residence_ns"]["p50"] > 1_800_000
    text = up("show").stdout
    assert "5 of 20 packets: 25 % of 25 %" in text
    assert "15 frames; time on the link p50" in text
    assert delay["achieved"]["percentile_error"] == 1 / 32
    assert "; percentiles to 3.125 %" in text
    assert "p99.9" not in text  # of 15


def test_a_link_goes_down_and_up(lab, up):
    up("set", "h2", "down")
    assert "no packet lost" in up("show", "s1->h2").stdout
    assert (
        lab.run(
            "inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1", "-W", "50ms"
        ).returncode
        == 1
    )
    up("set", "h2", "up")
    assert words(up) == []
    assert (
        lab.run("inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1").returncode
        == 0
    )


def test_named_packets_are_one_line(up):
    up("set", "s1->h2", "drop", "message", "0", "packet", "0-99,200")
    text = up("show").stdout.splitlines()
    assert text[1:] == [
        "  drop 101 packets: message 0 packet 0-99,200  (live:drop, key identity)",
        "    no packet lost",
    ]
    assert len(shown(up)) == 101


def test_another_seed_is_another_stream(up):
    first = json.loads(up("set", "s1->h2", "loss", "5%", "--json").stdout)
    other = json.loads(up("set", "s1->h2", "loss", "5%", "--seed", "9", "--json").stdout)
    assert first["lab"] == other["lab"]
    assert [each["fault"] for each in first["faults"]] == [
        each["fault"] for each in other["faults"]
    ]


MISTAKES = [
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
]


def test_what_cannot_be_is_a_mistake_of_the_user_s(up):
    for arguments, complaint in MISTAKES:
        result = up(*arguments)
        assert result.returncode == 2, (arguments, result.stdout, result.stderr)
        assert complaint in result.stderr, arguments
        assert "Traceback" not in result.stderr
    assert words(up) == []


def test_contradictions_leave_what_is_there(up):
    up("set", "s1->h2", "delay", "1ms", "reorder", "5%")
    result = up("clear", "s1->h2", "delay")
    assert result.returncode == 2
    assert len(words(up)) == 2


def test_no_lab(lab):
    result = lab.run("fault", "show", "--lab", lab.name)
    assert result.returncode == 2
    assert f"no lab called {lab.name}" in result.stderr


def test_who_is_not_root_is_told_so(lab, up, nobody):
    for arguments in (("show",), ("set", "s1->h2", "loss", "1%")):
        result = lab.run("fault", *arguments, "--lab", lab.name, user=nobody)
        assert result.returncode == 3
        assert "run it as root" in result.stderr


def end(lab, role):
    """SIGKILL to the lab's process of this role."""
    processes = lab.json("ps", lab.name)["labs"][0]["processes"]
    (pid,) = (each["pid"] for each in processes if each["role"] == role)
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)


def test_a_dead_wire_stage_hides_only_its_own_part(lab, up):
    up("set", "s1->h2", "loss", "periodic", "2", "delay", "1ms", "rate", "1Gbit")
    up("set", "s1->h1", "loss", "periodic", "2")
    end(lab, "wire")
    lab.run(
        "inspect",
        "path",
        "--ping",
        "h1",
        "h2",
        "--lab",
        lab.name,
        "-c",
        "4",
        "-i",
        "1ms",
        "-W",
        "50ms",
    )
    for arguments in ((), ("s1->h2",)):
        result = up("show", *arguments)
        assert result.returncode == 1
        assert "2 of 4 packets: 50 % of 50 %" in result.stdout
        assert result.stdout.count("unknown: the wire stage does not answer") == 2
        for words in ("wire stage died", "frames of s1->h2 are lost", f"lab down {lab.name}"):
            assert words in result.stderr
        assert "Traceback" not in result.stderr
    result = up("show", "--json")
    document = json.loads(result.stdout)
    assert result.returncode == 1
    assert "wire stage died" in document["problem"]["what"]
    known = {(each["link"], each["word"]): each["achieved"] for each in document["faults"]}
    assert known["s1->h2", "loss"]["hits"] == 2
    assert known["s1->h2", "delay"] is known["s1->h2", "rate"] is None
    unshaped = up("show", "s1->h1", "--json")
    assert (unshaped.returncode, json.loads(unshaped.stdout)["problem"]) == (0, None)


def test_a_dead_wire_stage_is_told_of(lab, up):
    up("set", "s1->h2", "delay", "1ms")
    assert lab.json("ps", lab.name)["labs"][0]["damage"] == []
    end(lab, "wire")
    line, lost = (text for text in lab.run("ps").stdout.splitlines() if lab.name in text)
    assert line.split()[:2] == [lab.name, "damaged"]
    assert "the wire stage is dead" in lost
    assert f"lab down {lab.name}" in lost
    result = up("set", "s1->h2", "delay", "2ms")
    assert result.returncode == 1
    assert "wire stage died" in result.stderr
    assert "Traceback" not in result.stderr
    assert up("clear").returncode == 0  # what needs no wire stage goes on
    assert (
        lab.run("inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1").returncode
        == 0
    )


def test_an_unknown_option_is_called_one():
    """The parser takes it for a word of the fault, because -5ms is one."""
    found = CliRunner().invoke(app, ["fault", "set", "s1->h2", "loss", "1%", "--name", "mine"])
    assert found.exit_code == ExitCode.USAGE
    assert "no such option: --name" in found.output
