# SPDX-License-Identifier: GPL-2.0-or-later
"""What needs no lab works for a user without rights, where neither bcc nor libbpf is installed.

Everything runs in a process in which the modules of the real clock cannot be imported, libbpf and
bcc's library cannot be loaded, and no socket sees frames.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = ROOT / "tests/captures/rxe_rc.pcap"
TIMEOUT_S = 120

BARE_MACHINE = """
import sys

def refuse(event, arguments):
    if event == "socket.__new__" and arguments[1] in (17, 44):  # AF_PACKET, AF_XDP
        raise PermissionError(1, "Operation not permitted")
    if event == "ctypes.dlopen" and any(name in str(arguments[0]) for name in ("bpf", "bcc")):
        raise OSError(f"{arguments[0]} is not installed here")

sys.addaudithook(refuse)
sys.modules |= dict.fromkeys(("bcc", "pyroute2"))
"""
LAB = BARE_MACHINE + "from softroce_lab.cli.app import main\nmain()"


@pytest.fixture
def folder():
    """An empty folder of nobody's, or ours if we cannot become nobody."""
    with tempfile.TemporaryDirectory(prefix="softroce-lab-rootless-") as path:
        if os.geteuid() == 0:
            shutil.chown(path, "nobody")
        yield Path(path)


def run_bare(folder, program, *arguments):
    """A program in Python on a bare machine, by a user without rights."""
    identity = {"user": "nobody", "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        **identity,
    )


@pytest.fixture
def lab(nobody, folder):
    """Runs `lab` there."""
    return lambda *arguments: run_bare(folder, LAB, *arguments)


def test_an_experiment_on_the_virtual_clock(lab, folder):
    result = lab("run", "point-to-point", "--clock", "virtual", "--json", "--quiet")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["clock"], document["verdict"]) == ("virtual", "passed")
    manifest = json.loads((folder / "runs/latest/manifest.json").read_text())
    assert manifest["state"] == "done"


def test_a_sweep(lab, folder):
    only = ("--only", "message=4 KiB", "--only", "RTT=8 us")
    result = lab("run", "snapshots", *only, "--jobs", "1", "--table", "table.md", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["passed"] == document["runs"] > 0
    assert (folder / document["table"]).is_file()
    assert "## RTT 8 us, loss none" in (folder / "table.md").read_text()


def test_the_demo_says_what_is_missing_and_runs_on_the_virtual_clock(lab, folder):
    (folder / "file").write_bytes(bytes(range(256)) * 4096)
    options = ("--file", "file", "--save", "copy", "--capture", "leaf2->spine1", "--seed", "1")
    result = lab("demo", *options)
    assert result.returncode == 0, result.stderr
    assert "lab: this machine lacks the rights of root (run it as root" in result.stderr
    assert "so the demo runs on the virtual clock" in result.stderr
    assert re.search(r"^clock +virtual +virtual$", result.stdout, re.MULTILINE)
    assert re.search(r"^verified, every byte +yes +yes$", result.stdout, re.MULTILINE)
    assert (
        len(re.findall(r"^[1-9]\d* packets captured, 0 missed", result.stdout, re.MULTILINE)) == 2
    )
    assert (folder / "copy").read_bytes() == (folder / "file").read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("verify", str(CAPTURE)),
        ("doctor", "--wireshark", "install"),
        ("inspect", "graph", "leaf-spine"),
        ("inspect", "node", "leaf1", "--lab", "leaf-spine"),
        ("inspect", "path", "h1", "h3", "--lab", "leaf-spine"),
        ("up", "leaf-spine", "--dry-run"),
        ("run", "--list"),
        ("fuzz", "--seeds", "1", "--transport", "csa_ud", "--jobs", "1"),
        ("run", "snapshots", "--dry-run"),
    ],
    ids=" ".join,
)
def test_it_needs_no_lab(lab, arguments):
    result = lab(*arguments)
    assert result.returncode == 0, result.stderr
    assert "unavailable" not in result.stdout  # a verb that cannot be imported


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "leaf-spine"),
        ("kernel-host", "prepare"),
        ("run", "point-to-point", "--clock", "real"),
        ("run", "crosscheck", "--clock", "both"),
        ("demo", "--clock", "real"),
    ],
    ids=" ".join,
)
def test_it_needs_a_lab_and_says_so(lab, folder, arguments):
    result = lab(*arguments)
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr.startswith("lab: ")
    assert "hint: run it as root" in result.stderr
    assert list(folder.iterdir()) == []
