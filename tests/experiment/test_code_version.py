# SPDX-License-Identifier: GPL-2.0-or-later
"""Which code it was: a commit, or where there is none, the version."""

import os
import subprocess

import pytest

from softroce_lab import __version__
from softroce_lab.experiment import code_version

NOBODY = 65534


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    monkeypatch.setattr(code_version, "PROJECT_ROOT", tmp_path)
    (tmp_path / "file").write_text("1")
    git(tmp_path, "init")
    git(tmp_path, "add", "file")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=b", "commit", "-m", "c")
    return tmp_path


def git(where, *arguments):
    argv = ["git", "-C", where, *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


def test_a_commit_and_whether_files_differ(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    (checkout / "new").touch()
    assert (code_version.commit(), code_version.name()) == (head, head)
    (checkout / "file").write_text("2")
    assert code_version.commit() == f"{head}-dirty"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: needs root")
def test_a_checkout_of_somebody_else(checkout):
    head = code_version.commit()
    os.chown(checkout, NOBODY, NOBODY)
    os.chown(checkout / ".git", NOBODY, NOBODY)
    assert code_version.commit() == head


def test_a_wheel_has_its_version_wherever_it_lies(checkout, monkeypatch):
    monkeypatch.setattr(code_version, "PROJECT_ROOT", checkout / "lib")
    (checkout / "lib").mkdir()
    assert (code_version.commit(), code_version.name()) == (None, __version__)
