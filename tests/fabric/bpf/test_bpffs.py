# SPDX-License-Identifier: GPL-2.0-or-later
from softroce_lab.fabric.bpf import bpffs
from softroce_lab.fabric.net import syscalls


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
