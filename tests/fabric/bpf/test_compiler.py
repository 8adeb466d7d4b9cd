# SPDX-License-Identifier: GPL-2.0-or-later
"""bcc's demands stay inside: nothing of the process or the machine is changed by a compilation."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric import mounted
from softroce_lab.fabric.bpf import compiler, libbpf
from softroce_lab.fabric.bpf.compiler import Image, MapShape, Module, Program, compile_image
from softroce_lab.paths import XDP


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "xdp"


PLAIN = ("plain_switch", "plain_host")


def test_environment_folder_and_descriptors_are_as_before(monkeypatch, tmp_path):
    before = "/some/where"
    monkeypatch.setenv("BCC_KERNEL_SOURCE", before)
    compile_image("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})  # opens some things for good
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, descriptors = Path.cwd(), os.listdir("/proc/self/fd")
    compile_image("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})
    assert os.environ.get("BCC_KERNEL_SOURCE") == before
    assert Path.cwd() == folder
    assert os.listdir("/proc/self/fd") == descriptors
    assert list(tmp_path.iterdir()) == []


def test_what_was_compiled_before_needs_no_compiler(monkeypatch):
    compiled = compile_image("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})
    with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}):
        pass
    monkeypatch.setattr(compiler, "compile_image", None)
    with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}):
        pass
    key = compiler.cache_key("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})
    assert compiler.recall_image(key) == compiled


def test_what_the_kernel_refuses_is_a_lab_error_with_the_verifiers_words(monkeypatch):
    endless = Image((), (Program("endless", bytes.fromhex("0500ffff00000000"), ()),))
    monkeypatch.setattr(compiler, "compile_image", lambda *_: endless)
    with pytest.raises(LabError, match=r"plain_redirect\.c does not load.*insn") as caught:
        Module("plain_redirect.c", ("endless",), {})
    assert "doctor" in caught.value.hint


def test_a_source_that_does_not_compile_is_a_lab_error(capfd):
    with pytest.raises(LabError, match=r"xdp/plain_redirect\.c does not compile"):
        compile_image("plain_redirect.c", PLAIN, {})  # LAB_PORTS is missing
    assert "LAB_PORTS" in capfd.readouterr().err


def test_missing_user_space_headers_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(compiler, "_UAPI", tmp_path)
    with pytest.raises(EnvironmentLackError, match="headers") as caught:
        Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})
    assert "linux-libc-dev" in caught.value.hint


def test_one_compilation_serves_maps_of_all_sizes(tmp_path):
    mounted.mount(tmp_path / "bpf", "bpf", "test")
    try:
        sizes = {"plain_egress": 3, "plain_xsks": 5}
        with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}, sizes) as module:
            module.pin(tmp_path / "bpf", tuple(sizes))
        for name, size in sizes.items():
            made = libbpf.Map.pinned(tmp_path / "bpf" / name)
            assert made.max_entries == size
            made.close()
    finally:
        mounted.unmount(tmp_path / "bpf", "bpf", "test")


# What is kept is used only if it is ours, whole, and of exactly what would be compiled now.

IMAGE = Image(
    (MapShape(2, "table", 4, 8, 16, 0),), (Program("run", bytes(range(16)), ((0, "table"),)),)
)


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
