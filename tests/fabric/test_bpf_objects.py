# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs and maps are seen while anybody holds them, and not a moment longer than that."""

import os
import time

import pytest

from softroce_lab.fabric import bpf, bpf_objects, bpf_probe, bpffs
from softroce_lab.fabric.bpf_objects import BpfObjects


@pytest.fixture
def mounted(tmp_path):
    path = tmp_path / "bpf"
    bpffs.mount(path, "test")
    yield path
    bpffs.unmount(path, "test")


def test_what_is_pinned_is_found_and_lives_until_it_is_let_go(mounted):
    with bpf_probe.program() as program, bpf_probe.table(2, 4, 4, 1) as table:
        bpf.pin(program, mounted / "program")
        bpf.pin(table, mounted / "table")
    found = bpf_objects.pinned(mounted)
    assert (len(found.programs), len(found.maps)) == (1, 1)
    assert found.living() == found
    (mounted / "program").unlink()
    left = bpf_objects.await_freed(found, 0.2)
    assert left == BpfObjects(maps=found.maps)
    assert str(left) == f"map {min(found.maps)}"
    (mounted / "table").unlink()
    assert not bpf_objects.await_freed(found, 2)


def test_waiting_ends(mounted):
    with bpf_probe.table(2, 4, 4, 1) as table:
        bpf.pin(table, mounted / "table")
        found = bpf_objects.pinned(mounted)
        begun = time.monotonic()
        assert bpf_objects.await_freed(found, 0.1) == found
        assert time.monotonic() - begun < 1


def test_looking_opens_nothing_for_good(mounted):
    with bpf_probe.table(2, 4, 4, 1) as table:
        bpf.pin(table, mounted / "table")
        before = os.listdir("/proc/self/fd")
        bpf_objects.pinned(mounted).living()
        assert os.listdir("/proc/self/fd") == before


def test_where_nothing_is_mounted_nothing_is_pinned(tmp_path):
    assert not bpf_objects.pinned(tmp_path / "none")
    assert not bpf_objects.pinned(tmp_path)
