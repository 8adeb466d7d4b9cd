# SPDX-License-Identifier: GPL-2.0-or-later
"""The structures of the headers that the libraries are built with are those of Debian 12.

A program of Debian 12 runs on them then, wherever they were built; newer headers may only add.
"""

import re
from pathlib import Path

import pytest

from tests.verbs_programs.layout import of_headers

DEBIAN_12 = Path(__file__).with_name("layout.txt").read_text().splitlines()
GREW = {"ibv_port_attr", "ibv_qp_ex"}  # with Debian 13; the library writes no more than asked for
HEADERS = Path("/usr/include/rdma/rdma_cma.h")


def sizes_and_offsets(lines):
    found = dict(line.rsplit(" ", 1) for line in lines)
    return {name: int(value) for name, value in found.items()}


@pytest.mark.skipif(not HEADERS.exists(), reason="needs librdmacm-dev")
def test_every_offset_is_that_of_debian_12():
    then, now = sizes_and_offsets(DEBIAN_12), sizes_and_offsets(of_headers())
    assert {name: now.get(name) for name in then if name not in GREW} == {
        name: value for name, value in then.items() if name not in GREW
    }
    assert all(now[name] >= then[name] for name in GREW)


def test_what_programs_read_is_in_the_list():
    names = {line.split()[0] for line in DEBIAN_12}
    assert {"ibv_qp.qp_num", "ibv_context.ops", "verbs_context.sz", "rdma_cm_id.pd"} <= names
    assert len(names) > 800
    assert all(re.fullmatch(r"\S+ \d+", line) for line in DEBIAN_12)
