# SPDX-License-Identifier: GPL-2.0-or-later
import stat

from softroce_lab.programs.kernel_host import cpio


def entries(data):
    """(name, mode, content) of an archive, read by the kernel's description of it."""
    while True:
        assert data.startswith(b"070701")
        fields = [int(data[6 + 8 * i : 14 + 8 * i], 16) for i in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[110 : 110 + name_size - 1].decode()
        begin = (110 + name_size + 3) // 4 * 4
        if name == "TRAILER!!!":
            return
        yield name, mode, data[begin : begin + size]
        data = data[(begin + size + 3) // 4 * 4 :]


def test_what_goes_in_comes_out():
    archive = cpio.Archive()
    archive.folder("bin")
    archive.file("bin/sh", b"#!", mode=0o755)
    archive.file("x", b"12345")
    assert list(entries(archive.bytes())) == [
        ("bin", stat.S_IFDIR | 0o755, b""),
        ("bin/sh", stat.S_IFREG | 0o755, b"#!"),
        ("x", stat.S_IFREG | 0o644, b"12345"),
    ]


def test_every_entry_has_an_inode_of_its_own():
    """Equal ones would be hard links to the kernel."""
    archive = cpio.Archive()
    archive.file("a", b"1")
    archive.file("b", b"2")
    data = archive.bytes()
    first, second = data.index(b"070701"), data.index(b"070701", 6)
    assert data[first + 6 : first + 14] != data[second + 6 : second + 14]
