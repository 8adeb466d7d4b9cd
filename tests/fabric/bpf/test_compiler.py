# SPDX-License-Identifier: GPL-2.0-or-later
"""bcc's demands stay inside: nothing of the process or the machine is changed by a compilation."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric.bpf import bpffs, compiler, libbpf
from softroce_lab.fabric.bpf.compiler import Image, Module, Program, compile_image


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))


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
    bpffs.mount(tmp_path / "bpf", "test")
    try:
        sizes = {"plain_egress": 3, "plain_xsks": 5}
        with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}, sizes) as module:
            module.pin(tmp_path / "bpf", tuple(sizes))
        for name, size in sizes.items():
            made = libbpf.Map.pinned(tmp_path / "bpf" / name)
            assert made.max_entries == size
            made.close()
    finally:
        bpffs.unmount(tmp_path / "bpf", "test")
