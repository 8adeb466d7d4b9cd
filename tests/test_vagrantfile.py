# SPDX-License-Identifier: GPL-2.0-or-later
"""The Vagrantfile, read by Vagrant itself where it is installed."""

import os
import shutil
import subprocess

import pytest

from softroce_lab import paths

pytestmark = pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")


def vagrant(home, *arguments):
    return subprocess.run(
        ["vagrant", *arguments],
        cwd=paths.PROJECT_ROOT,
        env=os.environ
        | {"VAGRANT_HOME": str(home / "home"), "VAGRANT_DOTFILE_PATH": str(home / "dot")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_vagrant_accepts_it(tmp_path):
    result = vagrant(tmp_path, "validate")
    if "No usable default provider" in result.stderr:
        result = vagrant(tmp_path, "validate", "--ignore-provider")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "validated successfully" in result.stdout
