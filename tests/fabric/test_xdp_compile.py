# SPDX-License-Identifier: GPL-2.0-or-later
"""bcc's demands stay inside: nothing of the process or the machine is changed by a compilation."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from softroce_lab.errors import EnvironmentLackError, LabError
from softroce_lab.fabric import xdp_compile
from softroce_lab.fabric.xdp_compile import Module

PLAIN = ("plain_switch", "plain_host")


@pytest.mark.parametrize("before", [None, "/some/where"])
def test_environment_folder_and_descriptors_are_as_before(monkeypatch, tmp_path, before):
    monkeypatch.delenv("BCC_KERNEL_SOURCE", raising=False)
    if before is not None:
        monkeypatch.setenv("BCC_KERNEL_SOURCE", before)
    with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}):
        pass  # what a first compilation opens for good is open now
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, descriptors = Path.cwd(), os.listdir("/proc/self/fd")
    with Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8}):
        assert os.environ.get("BCC_KERNEL_SOURCE") == before
    assert Path.cwd() == folder
    assert os.listdir("/proc/self/fd") == descriptors
    assert list(tmp_path.iterdir()) == []


def test_a_source_that_does_not_compile_is_a_lab_error(capfd):
    with pytest.raises(LabError, match=r"xdp/plain_redirect\.c does not compile"):
        Module("plain_redirect.c", PLAIN, {})  # LAB_PORTS is missing
    assert "LAB_PORTS" in capfd.readouterr().err


def test_missing_user_space_headers_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(xdp_compile, "_UAPI", tmp_path)
    with pytest.raises(EnvironmentLackError, match="headers") as caught:
        Module("plain_redirect.c", PLAIN, {"LAB_PORTS": 8})
    assert "linux-libc-dev" in caught.value.hint
