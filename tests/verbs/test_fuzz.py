# SPDX-License-Identifier: GPL-2.0-or-later
"""Bad use of the verbs ends in exceptions that they are known for, never in a crash.

In child processes, where a crash is seen.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CALLS = 3000


def output_by(program, seed):
    """What a fuzzer says at its end; PROGRAM SEED CALLS does it again."""
    command = [sys.executable, "-X", "faulthandler", str(HERE / program), str(seed), str(CALLS)]
    child = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, check=False,
                           capture_output=True, text=True, timeout=120)  # fmt: skip
    assert child.returncode == 0, child.stderr[-3000:]
    return child.stdout.split()


@pytest.mark.parametrize("seed", [1, 2])
def test_anything_at_all(seed):
    done = int(output_by("fuzz_api.py", seed)[0])
    assert CALLS // 4 < done < CALLS  # some of it makes sense, some does not


@pytest.mark.parametrize("seed", range(1, 5))
def test_requests_of_any_kind(seed):
    ends = int(output_by("fuzz_requests.py", seed)[0])
    assert ends > CALLS // 4
