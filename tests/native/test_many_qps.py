# SPDX-License-Identifier: GPL-2.0-or-later
"""Ten thousand connections of one host: made, used, and gone without a trace."""

import json
import subprocess
import sys

import pytest

from softroce_lab.paths import PROJECT_ROOT

COUNT, ROUNDS = 10_000, 3
MOST_BYTES = 1 << 30
MOST_S = 60  # for 10k queue pairs to be made, connected and used; it takes 0.2
LIMIT_S = 120


@pytest.fixture(scope="module")
def turns():
    # In a process of its own, whose memory nothing else moves.
    run = [sys.executable, "-m", "tests.native.many_qps", str(COUNT), str(ROUNDS)]
    done = subprocess.run(
        run, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=PROJECT_ROOT
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_ten_thousand_qps_fit_a_host(turns):
    """Both ends together, with their work requests, stay below 1 GiB."""
    print([f"{seconds:.2f} s, {most / 2**20:.0f} MiB" for seconds, most, _ in turns])
    assert max(most for _, most, _ in turns) < MOST_BYTES


def test_ten_thousand_qps_are_made_connected_and_used_in_seconds(turns):
    assert max(seconds for seconds, _, _ in turns) < MOST_S


def test_they_leave_nothing(turns):
    """What the first turn leaves, the following ones use again."""
    left = [after for _, _, after in turns]
    assert left[-1] - left[0] < left[0] * 0.05, left
