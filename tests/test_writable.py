# SPDX-License-Identifier: GPL-2.0-or-later
"""A file that cannot be written is refused before the work whose result it is to hold."""

import os

import pytest

from softroce_lab import writable
from softroce_lab.errors import UserError


def test_what_may_be_written_is_left_as_it_is(tmp_path):
    old = tmp_path / "old.md"
    old.write_text("old")
    writable.check(old, "--table FILE")
    writable.check(tmp_path / "new.md", "--table FILE")
    assert [each.name for each in tmp_path.iterdir()] == ["old.md"]
    assert old.read_text() == "old"


def test_a_folder_that_is_not_there_a_file_as_folder_and_a_folder(tmp_path):
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path / "none/x.md", f"there is no folder {tmp_path}/none"),
        (tmp_path / "file/x.md", f"there is no folder {tmp_path}/file"),
        (tmp_path, "it is a folder"),
    ):
        with pytest.raises(UserError, match=f"cannot write {path}: {why}") as caught:
            writable.check(path, "--table FILE")
        assert caught.value.hint.startswith("--table FILE: ")


def test_permission_is_needed_for_the_file_or_to_make_it(tmp_path, monkeypatch):
    (tmp_path / "old.md").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # which root always has
    with pytest.raises(UserError, match=r"old.md: permission denied"):
        writable.check(tmp_path / "old.md", "-o FILE")
    with pytest.raises(UserError, match=r"new.md: .* may not be written"):
        writable.check(tmp_path / "new.md", "-o FILE")
