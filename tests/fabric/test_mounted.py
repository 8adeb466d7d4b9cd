# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system that a lab mounts is known by its source."""

from softroce_lab.fabric import mounted
from softroce_lab.fabric.net import syscalls


def test_ours_is_known_by_its_source(tmp_path):
    path = tmp_path / "bpf"
    mounted.mount(path, "bpf", "lab-1")
    try:
        assert mounted.is_mounted(path, "bpf", "lab-1")
        assert not mounted.is_mounted(path, "bpf", "lab-2")
        assert not mounted.is_mounted(tmp_path, "bpf", "lab-1")
    finally:
        syscalls.umount(str(path))
    assert not mounted.is_mounted(path, "bpf", "lab-1")


def test_unmounting_is_repeatable(tmp_path):
    path = tmp_path / "bpf"
    mounted.mount(path, "bpf", "lab-1")
    for _ in range(2):
        mounted.unmount(path, "bpf", "lab-1")
        assert not path.exists()
