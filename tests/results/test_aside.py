# SPDX-License-Identifier: GPL-2.0-or-later
"""A file that is written aside is whole or not there."""

import shutil

import pytest

from softroce_lab.errors import RunError, UserError
from softroce_lab.results import aside


def write_and_fail(path, doing):
    with aside.writing(path, "--output FILE") as fresh:
        fresh.write_bytes(b"two")
        doing()


def test_an_exception_leaves_the_old_file(tmp_path):
    path = tmp_path / "page.html"
    aside.write(path, b"one")
    with pytest.raises(ZeroDivisionError):
        write_and_fail(path, lambda: 1 / 0)
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"page.html": b"one"}


def test_where_nothing_can_be_written_is_the_users_mistake(tmp_path):
    with pytest.raises(UserError, match="cannot write") as caught:
        aside.write(tmp_path / "none" / "page.html", b"one")
    assert caught.value.hint.startswith("-o FILE: ")


def test_what_fails_meanwhile_is_not(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(RunError, match=r"cannot write .*: No such file") as caught:
        write_and_fail(folder / "page.html", lambda: shutil.rmtree(folder))
    assert caught.value.hint == "--output FILE: where there is room"
