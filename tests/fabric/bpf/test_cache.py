# SPDX-License-Identifier: GPL-2.0-or-later
"""What is kept is used only if it is ours, whole, and of exactly what would be compiled now."""

import os
import shutil

import pytest

from softroce_lab.fabric.bpf import compiler
from softroce_lab.fabric.bpf.compiler import Image, MapShape, Program
from softroce_lab.paths import XDP

IMAGE = Image(
    (MapShape(2, "table", 4, 8, 16, 0),), (Program("run", bytes(range(16)), ((0, "table"),)),)
)


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    return tmp_path / "xdp"


def test_what_is_kept_comes_back():
    assert compiler.recall_image("name") is None
    compiler.keep_image("name", IMAGE)
    assert compiler.recall_image("name") == IMAGE


def test_only_we_may_write_it(folder):
    compiler.keep_image("name", IMAGE)
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "name").chmod(0o666)
    assert compiler.recall_image("name") is None


def test_what_was_kept_under_another_name_is_not_taken(folder):
    compiler.keep_image("name", IMAGE)
    shutil.copy(folder / "name", folder / "other")
    assert compiler.recall_image("other") is None


@pytest.mark.parametrize(
    "data",
    [
        b"no JSON",
        b"\xff\xfe",
        b"17",
        b"[]",
        b"[[], [], []]",
        b'[[[2, "table"]], []]',  # a map's shape with less in it
        b'[[], [["run", "no hex", []]]]',
        b'{"maps": [], "programs": []}',
        b"[" * 5000,
    ],
)
def test_another_format_is_not_taken(folder, data):
    """A whole file, and ours, but not as we write it now."""
    compiler.keep_image("name", IMAGE)
    (folder / "name").write_bytes(compiler._digest("name", data) + b"\n" + data)
    assert compiler.recall_image("name") is None


def test_the_oldest_are_forgotten(folder, monkeypatch):
    monkeypatch.setattr(compiler, "_KEPT", 2)
    for second, name in enumerate("abc"):
        compiler.keep_image(name, IMAGE)
        os.utime(folder / name, (second, second))
    assert compiler.recall_image("b") == IMAGE  # which makes it the newest
    compiler.keep_image("d", IMAGE)
    assert sorted(path.name for path in folder.iterdir()) == ["b", "d"]


def test_the_key_covers_all_that_goes_in(monkeypatch, tmp_path):
    def key(source="a.c", programs=("p",), **parameters):
        return compiler.cache_key(source, programs, parameters)

    keys = {key(), key("b.c"), key(programs=("p", "q")), key(LAB_PORTS=1), key(LAB_PORTS=2)}
    monkeypatch.setattr(compiler.platform, "release", lambda: "another kernel")
    keys.add(key())
    copy = tmp_path / "sources"
    shutil.copytree(XDP, copy)
    monkeypatch.setattr(compiler, "XDP", copy)
    keys.add(key())
    (copy / "fabric.c").write_text("int changed;")
    keys.add(key())
    (tmp_path / "format.py").write_text("another format")
    monkeypatch.setattr(compiler, "__file__", str(tmp_path / "format.py"))
    keys.add(key())
    assert len(keys) == 9
