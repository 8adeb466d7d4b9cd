# SPDX-License-Identifier: GPL-2.0-or-later
import json


def test_the_labs_in_lines(lab):
    lab.up()
    (line,) = [line for line in lab.run("ps").stdout.splitlines() if lab.name in line]
    assert line.split()[:2] == [lab.name, "up"]
    assert "3 nodes, 2 links" in line


def test_one_lab_in_detail(lab):
    lab.up()
    text = lab.run("ps", lab.name).stdout
    assert "h1:eth1 - s1:p1" in text
    assert "monitor: process" in text


def test_the_same_as_json(lab):
    lab.up()
    document = lab.json("ps", lab.name)
    assert document["schema_version"] == 1
    (found,) = document["labs"]
    assert (found["name"], found["state"], found["remains"]) == (lab.name, "up", None)
    alive = {each["role"]: each["alive"] for each in found["processes"]}
    assert alive == {"monitor": True, "wire": True}
    assert found["damage"] == []
    assert len(found["plan"]["nodes"]) == 3


def test_who_is_not_root_is_told_so(lab, nobody):
    lab.up()
    result = lab.run("ps", lab.name, user=nobody)
    assert result.returncode == 3
    assert "run it as root" in result.stderr


def test_what_no_lab_made_is_shown_with_its_reason(lab, intruder):
    lab.up()
    lines = lab.run("ps").stdout.splitlines()
    (line,) = [line for line in lines if intruder.name in line]
    assert line.split()[:2] == [intruder.name, "unreadable"]
    assert "is not a lab's" in line
    documents = {each["name"]: each for each in lab.json("ps")["labs"]}
    assert documents[lab.name]["state"] == "up"
    assert "is not a lab's" in documents[intruder.name]["problem"]


def test_what_no_lab_made_is_in_nobodys_way(lab, intruder):
    assert lab.up().returncode == 0
    assert lab.run("doctor", "--clean").returncode == 0
    result = lab.run("down", intruder.name)
    assert result.returncode == 1
    assert "is not a lab's" in result.stderr
    assert lab.run("down", lab.name).returncode == 0
    assert intruder.is_symlink()


def test_an_unknown_lab(lab):
    result = lab.run("ps", "nowhere")
    assert result.returncode == 2
    assert "no lab called nowhere" in result.stderr


def test_a_link_that_was_removed_by_hand(lab):
    lab.up()
    gone = lab.run("exec", "--lab", lab.name, "s1", "--", "ip", "link", "del", "p1")
    assert gone.returncode == 0
    result = lab.run("ps", lab.name, "--json")
    assert result.returncode == 1
    (lost,) = json.loads(result.stdout)["labs"][0]["damage"]
    assert set(lost["links"]) == {"h1->s1", "s1->h1"}
    assert lost["hint"] == f"lab down {lab.name}, and up again"
    result = lab.run("ps")
    assert result.returncode == 1
    assert f"{lost['what']}: {lost['hint']}" in result.stdout
    for words in (("set", "h1->s1", "loss", "1%"), ("show", "h1->s1")):
        result = lab.run("fault", *words, "--lab", lab.name)
        assert result.returncode == 1
        assert lost["what"] in result.stderr
    assert lab.json("fault", "show", "s1->h2", "--lab", lab.name)["faults"] == []
    elsewhere = lab.run("fault", "set", "s1->h2", "loss", "1%", "--lab", lab.name)
    assert elsewhere.returncode == 0
    pinged = lab.run(
        "inspect", "path", "--ping", "h1", "h2", "--lab", lab.name, "-c", "1", "-W", "50ms"
    )
    assert pinged.returncode == 1
    for reported in (elsewhere, pinged, lab.run("inspect", "node", "s1", "--lab", lab.name),
                 lab.run("inspect", "graph", lab.name)):  # fmt: skip
        assert lost["what"] in reported.stderr
