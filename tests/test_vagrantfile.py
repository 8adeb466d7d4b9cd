# SPDX-License-Identifier: GPL-2.0-or-later
"""The Vagrantfile: what it runs, and that Vagrant takes it where that is installed."""

import os
import re
import shutil
import subprocess

import pytest

from softroce_lab import paths
from tests.guests import root


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


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="vagrant is not installed")
def test_vagrant_accepts_it(tmp_path):
    result = vagrant(tmp_path, "validate")
    if "No usable default provider" in result.stderr:
        result = vagrant(tmp_path, "validate", "--ignore-provider")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "validated successfully" in result.stdout


def test_it_provisions_as_the_guests_do():
    text = (paths.PROJECT_ROOT / "Vagrantfile").read_text()
    (script,) = re.findall(
        r'^ *config\.vm\.provision "shell", inline: "/vagrant/(.*)"$', text, re.M
    )
    assert paths.PROJECT_ROOT / script == root.PROVISION
    assert os.access(root.PROVISION, os.X_OK)
