# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the project's files are found."""

import importlib.util
import os

import pytest

from softroce_lab import paths
from softroce_lab.errors import EnvironmentLackError


def test_a_checkout_is_read_in_place():
    assert (paths.PROJECT_ROOT / "lab").is_file()
    assert (paths.XDP / "lab_wire.h").is_file()


def test_the_monitor_lies_beside_the_native_module():
    program = paths.native_program("softroce-monitor")
    native = importlib.util.find_spec("softroce_lab._native")
    assert program.parent.parent == type(program)(native.origin).parent
    assert os.access(program, os.X_OK)


def test_a_program_that_was_not_built_is_named():
    with pytest.raises(EnvironmentLackError, match=r"softroce-nonesuch[\s\S]*\./lab"):
        paths.native_program("softroce-nonesuch")
