# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own tests of a device, against ours."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.programs import pyverbs_suite
from tests.programs.pair import ended, finished

SUITE = PROJECT_ROOT / "tests" / "programs" / "pyverbs_suite.py"
SHORT = ("test_cq", "test_pd")
LONGEST_S = 600
# It expects that a queue with two completions cannot shrink to one entry: ours has 255 at least.
FAILS = {"test_cq.CQTest.test_resize_cq"}
# The others ask for what the device does not have, or run both sides in children of one process.
COUNTS = "170 tests: 49 passed, 1 failed, 120 skipped, 0 crashed"


@pytest.mark.full("verbs-pyverbs")
def test_what_fails_is_explained(pair, full):
    """rdma-core's own tests: as many pass as is known, what fails is explained, no crash."""
    if not pyverbs_suite.SHIPPED.is_dir():
        pytest.skip("needs the documents of Debian's python3-pyverbs")
    # A virtual environment's Python does not have Debian's packages.
    with ended(pair.start("h1", "/usr/bin/python3", SUITE, *(() if full else SHORT))) as process:
        done = finished(process, LONGEST_S)
    assert done.returncode == 0, done.stderr
    *modules, total = done.stdout.splitlines()
    assert len(modules) >= len(SHORT)
    assert not [line for line in modules if "ended with" in line], done.stdout
    failed = set(re.findall(r"failed: ([\w.]+)", done.stdout))
    assert failed == FAILS
    if full:
        assert total == COUNTS
