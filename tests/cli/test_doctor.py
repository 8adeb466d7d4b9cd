# SPDX-License-Identifier: GPL-2.0-or-later
def test_a_healthy_machine_in_lines(lab):
    result = lab.run("doctor")
    assert result.returncode == 0, result.stdout
    assert "ok       the rights of root" in result.stdout


def test_the_same_as_json(lab):
    document = lab.json("doctor")
    assert document["healthy"]
    assert document["virtual_clock"]
    keys = {"capability", "tried", "found", "required", "why", "without", "how", "detail"}
    assert all(set(each) == keys for each in document["capabilities"])


def test_what_is_missing_says_why_and_how(lab, nobody):
    result = lab.run("doctor", user=nobody)
    assert result.returncode == 3
    assert "MISSING  the rights of root" in result.stdout
    assert "get: run it as root, or with sudo" in result.stdout
    assert result.stdout.count("MISSING") == 1
    assert "?        bcc's compiler           not tried" in result.stdout
    assert "ok       the native wire stage" in result.stdout
    assert "CONFIG_" not in result.stdout
    assert "the virtual clock works" in result.stdout
    assert result.stderr == ""
