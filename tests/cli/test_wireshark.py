# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab doctor --wireshark status`."""

import pytest

from softroce_lab.errors import ExitCode
from tests.cli.conftest import CommandLine


@pytest.fixture
def lab():
    return CommandLine()


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "plugins")


def test_it_is_installed_and_removed(lab, folder):
    assert lab.run("doctor", "--wireshark", "status", "-o", folder).stdout.startswith(
        "not installed: "
    )
    assert lab.run("doctor", "--wireshark", "install", "-o", folder).stdout == (
        f"installed: {folder}/softroce.lua\n"
    )
    assert lab.json("doctor", "--wireshark", "status", "-o", folder) == {
        "path": f"{folder}/softroce.lua", "state": "current",
    }  # fmt: skip
    assert lab.run("doctor", "--wireshark", "remove", "-o", folder).returncode == 0
    assert lab.json("doctor", "--wireshark", "status", "-o", folder)["state"] == "absent"


def test_it_is_printed(lab):
    text = lab.run("doctor", "--wireshark", "print").stdout
    assert text.startswith("-- softroce_lab: ")
    assert text.endswith("register_postdissector(softroce)\n")


def test_somebody_else_s_file_stays(lab, tmp_path):
    (tmp_path / "softroce.lua").write_text("-- mine\n")
    result = lab.run("doctor", "--wireshark", "install", "-o", str(tmp_path))
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert "is not of softroce_lab" in result.stderr
    assert "hint: " in result.stderr
    assert (tmp_path / "softroce.lua").read_text() == "-- mine\n"


def test_one_folder_at_a_time(lab):
    result = lab.run("doctor", "--wireshark", "install", "--global", "-o", "/x")
    assert (result.returncode, result.stdout) == (ExitCode.USAGE, "")
    assert "name one of them" in result.stderr
