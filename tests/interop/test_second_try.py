# SPDX-License-Identifier: GPL-2.0-or-later
"""Which tests get a second try: this folder's hooks, in a pytest of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOOKS = "from tests.interop.conftest import living_guests, pytest_pyfunc_call\n"
TESTS = """
import pytest
from softroce_lab.programs.kernel_host.guest import GuestDeadError

REPORT = '''
[    9.000000] BUG: unable to handle page fault for address: ffff888000000000
[    9.000001] RIP: 0010:{place}
[    9.000002] Kernel panic - not syncing: Fatal exception in interrupt
'''
tries = []

def die(tmp_path, place):
    console = tmp_path / "console"
    console.write_text(REPORT.format(place=place))
    raise GuestDeadError("k1", console)

def test_once(tmp_path):
    tries.append("once")
    if tries.count("once") == 1:
        die(tmp_path, "rxe_completer+0x1/0x2 [rdma_rxe]")

def test_twice(tmp_path):
    tries.append("twice")
    die(tmp_path, "rxe_completer+0x1/0x2 [rdma_rxe]")

def test_elsewhere(tmp_path):
    tries.append("elsewhere")
    die(tmp_path, "ext4_readdir+0x1/0x2 [ext4]")

def test_ours():
    tries.append("ours")
    assert False

def test_tries():
    assert tries == ["once", "once", "twice", "twice", "elsewhere", "ours"]
"""


def test_a_panic_of_rdma_rxe_gets_one_and_nothing_else_does(tmp_path):
    (tmp_path / "conftest.py").write_text(HOOKS)
    (tmp_path / "test_guests.py").write_text(TESTS)
    argv = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", "-rpf"]
    done = subprocess.run(
        [*argv, "--rootdir", str(tmp_path), str(tmp_path)],
        capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    ends = {line.split("::")[1].split()[0]: line.split()[0] for line in summary(done.stdout)}
    failed = dict.fromkeys(("test_twice", "test_elsewhere", "test_ours"), "FAILED")
    assert ends == {"test_once": "PASSED", "test_tries": "PASSED"} | failed, done.stdout
    warnings = [line for line in done.stdout.splitlines() if "PytestWarning: " in line]
    assert len(warnings) == 2, done.stdout
    assert "test_once: rdma_rxe of Linux panicked; once more." in warnings[0]
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert "RIP: 0010:rxe_completer+0x1/0x2 [rdma_rxe]" in lines


def summary(text):
    lines = text.partition("short test summary info")[2].splitlines()
    return [line for line in lines if line.startswith(("PASSED", "FAILED"))]
