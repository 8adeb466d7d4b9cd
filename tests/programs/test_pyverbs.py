# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own tests of a device, against ours: what docs/programs.md says of them holds."""

import re

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.programs import pyverbs_suite
from tests.programs.pair import ended, finished

PAGE = PROJECT_ROOT / "docs" / "programs.md"
SUITE = PROJECT_ROOT / "tests" / "programs" / "pyverbs_suite.py"
SHORT = ("test_cq", "test_pd")
LONGEST_S = 600


@pytest.mark.full("verbs-pyverbs")
def test_what_fails_is_explained(pair, full):
    """rdma-core's own tests: as many pass as the page says, what fails is explained, no crash."""
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
    page = " ".join(PAGE.read_text().split())
    assert failed == set(re.findall(r"\| `(test_[\w.]+)` \| fails \|", page))
    if not full:
        return
    counts = re.search(r"of (\d+) tests (\d+) passed, (\d+) failed and (\d+) were skipped", page)
    tests, passed, failures, skipped = counts.groups()
    assert total == (
        f"{tests} tests: {passed} passed, {failures} failed, {skipped} skipped, 0 crashed"
    )
