# SPDX-License-Identifier: GPL-2.0-or-later
import json

import pytest

CUT = """
name: cut
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch}}
  links:
    - endpoints: ["h1:eth1", "s1:p1"]
    - endpoints: ["h2:eth1", "s1:p2"]
faults:
  - {name: cut, links: "s1->h2", loss: random 100%}
"""


@pytest.mark.parametrize("family", [(), ("-6",)])
def test_round_trips(lab, family):
    lab.up()
    document = lab.json(
        "inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "4", "-i", "1ms", *family
    )
    assert (document["sent"], document["received"], document["loss"]) == (4, 4, 0)
    assert {reply["hops"] for reply in document["replies"]} == {1}
    times = document["rtt_ns"]
    assert 0 < times["min"] <= times["avg"] <= times["max"] < 10**9
    assert ":" in document["to"]["address"] if family else document["to"]["address"] == "10.0.0.2"


def test_the_largest_that_fits(lab):
    lab.up()
    most = lab.json(
        "inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1", "-s", "2172"
    )
    assert most["received"] == 1
    result = lab.run(
        "inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1", "-s", "2173"
    )
    assert result.returncode == 2
    assert "at most 2172" in result.stderr


def test_in_words(lab):
    lab.up()
    result = lab.run(
        "inspect", "path", "--ping", "h1:eth1", "h2", "--lab", lab.name, "-c", "2", "-i", "1ms"
    )
    assert "2 sent, 2 received, 0 % lost" in result.stdout
    assert "1 hop\n" in result.stdout
    assert "round trip: min" in result.stdout


def test_every_rail_of_a_host(lab):
    assert lab.run("up", "dual-rail", "--name", lab.name).returncode == 0
    for rail, network in (("1", "10.0."), ("2", "10.1.")):
        document = lab.json("inspect", "path", "--ping", "h1", "h3", "--lab", lab.name, "-c", "2",
                            "-i", "1ms",
                            "--rail", rail)  # fmt: skip
        assert document["to"]["address"].startswith(network)
        assert document["received"] == 2


def test_nothing_comes_back(lab, tmp_path):
    file = tmp_path / "cut.yaml"
    file.write_text(CUT)
    lab.run("up", str(file), "--name", lab.name)
    result = lab.run("inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "2",
                     "-i", "1ms", "-W", "100ms",
                     "--json")  # fmt: skip
    assert result.returncode == 1
    assert json.loads(result.stdout)["rtt_ns"] is None


@pytest.mark.parametrize(
    ("ends", "complaint"),
    [(("h1", "s1"), "s1 is a switch"), (("h1", "h1"), "both ends"), (("h1", "h9"), "no node h9")],
)
def test_bad_ends(lab, ends, complaint):
    lab.up()
    result = lab.run("inspect", "path", "--ping", *ends, "--lab", lab.name)
    assert result.returncode == 2
    assert complaint in result.stderr
