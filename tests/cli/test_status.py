# SPDX-License-Identifier: GPL-2.0-or-later
def test_the_labs_in_lines(lab):
    lab.up()
    (line,) = [line for line in lab.run("status").stdout.splitlines() if lab.name in line]
    assert line.split()[:2] == [lab.name, "up"]
    assert "3 nodes, 2 links" in line


def test_one_lab_in_detail(lab):
    lab.up()
    text = lab.run("status", lab.name).stdout
    assert "h1:eth1 - s1:p1" in text
    assert "monitor: process" in text


def test_the_same_as_json(lab):
    lab.up()
    document = lab.json("status", lab.name)
    assert document["schema_version"] == 1
    (found,) = document["labs"]
    assert (found["name"], found["state"], found["remains"]) == (lab.name, "up", None)
    (monitor,) = found["processes"]
    assert (monitor["role"], monitor["alive"]) == ("monitor", True)
    assert len(found["plan"]["nodes"]) == 3


def test_a_user_without_rights_may_look(lab):
    lab.up()
    result = lab.run("status", lab.name, user=65534)
    assert result.returncode == 0
    assert "h1:eth1 - s1:p1" in result.stdout


def test_an_unknown_lab(lab):
    result = lab.run("status", "nowhere")
    assert result.returncode == 2
    assert "no lab called nowhere" in result.stderr
