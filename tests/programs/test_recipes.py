# SPDX-License-Identifier: GPL-2.0-or-later
"""The recipe of docs/howto/rdma-in-ci.md for somebody else's CI: its very commands.

They run in namespaces in which no other lab is. Root needs no sudo here.
"""

import os
import re
import subprocess
import textwrap
import time

from softroce_lab.paths import PROJECT_ROOT

PAGE = PROJECT_ROOT / "docs/howto/rdma-in-ci.md"
LONGEST_S = 300  # more than a prepared checkout takes beside other tests
ALONE = """\
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
exec bash -e "$1"
"""


def test_the_job_runs_perftest_over_a_lossy_fabric(pair, tmp_path):
    """`pair` has prepared the checkout, which takes minutes the first time."""
    [job] = re.findall(r"```yaml\n(- uses: .*?)```", PAGE.read_text(), re.DOTALL)
    script = textwrap.dedent(job.partition("- run: |\n")[2])
    assert {"sudo ./lab up two-hosts", "sudo ./lab down"} <= set(script.splitlines())
    (tmp_path / "lab").symlink_to(PROJECT_ROOT)
    (tmp_path / "job").write_text(script)
    sudo = tmp_path / "bin" / "sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    began_s = time.monotonic()
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-e", "-c", ALONE, "sh", tmp_path / "job"],
        cwd=tmp_path, env={**os.environ, "PATH": f"{sudo.parent}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=LONGEST_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = re.findall(r"^ 65536 +1000 +[\d.]+ +[\d.]+", done.stdout, re.MULTILINE)
    assert results, done.stdout
    print(f"{time.monotonic() - began_s:.0f} s")
