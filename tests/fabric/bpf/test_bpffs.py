# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab's file system, and its objects: seen while anybody holds them, and not longer."""

import time

import pytest

from softroce_lab.fabric.bpf import bpffs, libbpf
from softroce_lab.fabric.bpf.bpffs import BpfObjects
from softroce_lab.fabric.net import syscalls
from tests.labs import eventually


def test_ours_is_known_by_its_source(tmp_path):
    path = tmp_path / "bpf"
    bpffs.mount(path, "lab-1")
    try:
        assert bpffs.is_mounted(path, "lab-1")
        assert not bpffs.is_mounted(path, "lab-2")
        assert not bpffs.is_mounted(tmp_path, "lab-1")
    finally:
        syscalls.umount(str(path))
    assert not bpffs.is_mounted(path, "lab-1")


def test_unmounting_is_repeatable(tmp_path):
    path = tmp_path / "bpf"
    bpffs.mount(path, "lab-1")
    for _ in range(2):
        bpffs.unmount(path, "lab-1")
        assert not path.exists()


@pytest.fixture
def mounted(tmp_path):
    path = tmp_path / "bpf"
    bpffs.mount(path, "test")
    yield path
    bpffs.unmount(path, "test")


def test_what_is_pinned_is_found_and_lives_until_it_is_let_go(mounted):
    with libbpf.probe_program() as program, libbpf.probe_map(2, 4, 4, 1) as table:
        libbpf.pin(program, mounted / "program")
        libbpf.pin(table, mounted / "table")
    found = bpffs.pinned(mounted)
    assert (len(found.programs), len(found.maps)) == (1, 1)
    assert found.living() == found
    (mounted / "program").unlink()
    left = BpfObjects(maps=found.maps)
    assert eventually(lambda: found.living() == left)
    assert str(left) == f"map {min(found.maps)}"
    (mounted / "table").unlink()
    assert not bpffs.await_freed(found, 30)


def test_waiting_ends(mounted):
    with libbpf.probe_map(2, 4, 4, 1) as table:
        libbpf.pin(table, mounted / "table")
        found = bpffs.pinned(mounted)
        begun = time.monotonic()
        assert bpffs.await_freed(found, 0.1) == found
        assert time.monotonic() - begun < 30
