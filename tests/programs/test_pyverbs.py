# SPDX-License-Identifier: GPL-2.0-or-later
"""rdma-core's own tests of a device, against ours."""

import collections
import re

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests.programs import pyverbs_suite
from tests.programs.pair import ended, finished

SUITE = PROJECT_ROOT / "tests" / "programs" / "pyverbs_suite.py"
SHORT = ("test_cq", "test_cqex", "test_mr", "test_pd", "test_qpex")
LONGEST_S = 600
COUNTS = "170 tests: 94 passed, 1 failed, 75 skipped, 0 crashed"
FAILS = {
    # The test duplicates the descriptor of the kernel's device, of which there is none.
    "test_shared_pd.SharedPDTestCase.test_imported_rc_ex_rdma_write"
}
# How many skip, by what they say; and why that is so here.
SKIPS = {
    "Device memory is not supported": 14,  # a NIC's own memory
    "ODP is not supported": 14,  # on-demand paging: the RNIC cannot answer a fault of its program
    "Allocating dmabuf is not supported|.*(dri|DRM)": 10,  # needs a GPU
    "Device softroce0 doesn't have net interface": 10,  # CM: both sides in children of one process
    "Create XRCD is not supported": 7,  # XRC
    "Create QP type 8 is not supported": 6,  # raw packets, and their steering
    "Create Raw Packet QP with": 5,
    "Extended CQ is not supported": 4,  # tag matching: the test asks for its completions
    "There are no huge pages": 3,  # of the machine
    "Extended QP is not supported on this device": 1,  # ATOMIC WRITE, of IBA 1.5
    "All gid indices populated": 1,  # the GID table has no empty entry
}


def skips_of(printed):
    """How many skipped, by the key of `SKIPS`; a reason that is none of them stays as it is."""
    found = collections.Counter()
    for count, reason in re.findall(r"^(\d+) skipped: (.*)$", printed, re.MULTILINE):
        known = next((each for each in SKIPS if re.match(each, reason)), reason)
        found[known] += int(count)
    return dict(found)


@pytest.mark.full("verbs-pyverbs")
def test_what_fails_is_explained(pair, full):
    """rdma-core's own tests: as many pass as is known, the rest is explained, no crash."""
    if not pyverbs_suite.SHIPPED.is_dir():
        pytest.skip("needs the documents of Debian's python3-pyverbs")
    # A virtual environment's Python does not have Debian's packages.
    with ended(pair.start("h1", "/usr/bin/python3", SUITE, *(() if full else SHORT))) as process:
        done = finished(process, LONGEST_S)
    assert done.returncode == 0, done.stderr
    *lines, total = done.stdout.splitlines()
    assert len(lines) >= len(SHORT)
    assert not [line for line in lines if "ended with" in line], done.stdout
    failed = set(re.findall(r"failed: ([\w.]+)", done.stdout))
    skips = skips_of(done.stdout)
    if full:
        assert (total, failed, skips) == (COUNTS, FAILS, SKIPS)
    else:
        assert not failed
        assert skips.keys() <= SKIPS.keys()
