# SPDX-License-Identifier: GPL-2.0-or-later
"""The structures of the headers that the libraries are built with are those of Debian 12 and 13.

A program of either runs on them then, wherever they were built; newer headers may only add.
"""

from pathlib import Path

import pytest

from tests.programs import debian
from tests.programs.layout import of_headers

HEADERS = Path("/usr/include/rdma/rdma_cma.h")
GREW = {  # since Debian 12; the library writes no more than asked for
    "ibv_port_attr": "ibv_port_attr.active_speed_ex",
    "ibv_qp_ex": "ibv_qp_ex.wr_flush",
}


def offsets(release):
    return debian.layout(debian.committed(release))


@pytest.mark.skipif(not HEADERS.exists(), reason="needs librdmacm-dev")
@pytest.mark.parametrize("release", debian.PACKAGES)
def test_every_offset_here_is_that_of_debian(release):
    then = offsets(release)
    now = debian.layout(f"layout {line}" for line in of_headers())
    fixed = {name: value for name, value in then.items() if name not in {*GREW, *GREW.values()}}
    assert {name: now.get(name) for name in fixed} == fixed
    assert len(fixed) > 800


def test_what_grew_is_at_the_end():
    """So a program of Debian 12 finds all else where it was, and one of 13 may ask for more."""
    old, new = offsets("12"), offsets("13")
    assert {name for name in new if new[name] != old.get(name)} == {*GREW, *GREW.values()}
    for structure, member in GREW.items():
        assert old[structure] == new[member] < new[structure]


def test_what_programs_read_is_in_the_list():
    names = offsets("12").keys()
    assert {"ibv_qp.qp_num", "ibv_context.ops", "verbs_context.sz", "rdma_cm_id.pd"} <= names
