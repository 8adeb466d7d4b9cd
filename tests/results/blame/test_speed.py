# SPDX-License-Identifier: GPL-2.0-or-later
"""How long `lab results explain --cost` takes: a ring all-reduce of 128 hosts with 1,000 losses."""

import os
import subprocess
import sys
import time

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.results.made import run

AIM_S = 120.0  # on two cores


@pytest.mark.full("blame-speed")
def test_a_large_ring(tmp_path, full, capsys):
    """`lab results explain --cost` of 128 hosts and 1,000 losses: less than 2 minutes."""
    leaves = 16 if full else 2
    fabric = (
        f"{{kind: leaf-spine, leaves: {leaves}, spines: 8, hosts_per_leaf: 8, "
        "access: {rate: 100Gbit, delay: 1us, limit: 1MiB}, "
        "core: {rate: 100Gbit, delay: 1us, limit: 1MiB}}"
    )
    directory = run(
        "ring-all-reduce", tmp_path, f"topology={{generator: {fabric}}}", "payload=none", "seeds=1",
        f"workload={{kind: ring-all-reduce, bytes: {4 if full else 1}MiB, message: 64KiB}}",
        "faults=[{name: lossy, links: 'leaf*<->spine*', loss: 0.35%}]", transports=("irn",),
    )  # fmt: skip
    line = ("-m", "softroce_lab.cli", "results", "explain", "--cost", str(directory), "-q")
    argv = [sys.executable, *line]
    began_s, used = time.monotonic(), os.times()
    done = subprocess.run(argv, cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    took_s, now = time.monotonic() - began_s, os.times()
    cpu_s = now.children_user + now.children_system - used.children_user - used.children_system
    first = done.stdout.splitlines()[0]
    with capsys.disabled():
        print(f"\n{first} Found in {took_s:.1f} s, {cpu_s:.1f} s of processor time")
    assert " losses by rules, and takes " in first
    assert took_s < (AIM_S if full else 300)
