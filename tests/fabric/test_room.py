# SPDX-License-Identifier: GPL-2.0-or-later
"""Labs on file systems that take no more: they go down, come up or say why, and leave nothing."""

from __future__ import annotations

import errno
import re
import tempfile
from pathlib import Path

import pytest

from softroce_lab.errors import RunError
from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.ledger.ledger import Ledger
from softroce_lab.fabric.net import syscalls


class SmallRun:
    """The labs' directory on a file system of its own, in memory."""

    def __init__(self, path):
        self.path = path

    def resize(self, size_bytes):
        syscalls.mount("small", str(self.path), None, syscalls.MS_REMOUNT, f"size={size_bytes}")

    def fill(self):
        with (self.path / "filler").open("ab", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def drain(self):
        (self.path / "filler").unlink()


@pytest.fixture
def small_run(monkeypatch):
    path = Path(tempfile.mkdtemp(prefix="lab"))  # short: sockets live there
    syscalls.mount("small", str(path), "tmpfs", 0, "size=1m")
    monkeypatch.setattr(runtime, "DIRECTORY", path / "labs")
    yield SmallRun(path)
    syscalls.umount(str(path))
    path.rmdir()


@pytest.fixture
def book(small_run):
    ledger_of_x = Ledger.begin(runtime.DIRECTORY / "x", ephemeral=False)
    yield ledger_of_x
    ledger_of_x.close()


@pytest.mark.parametrize("pages", [1, 3, 6])
def test_a_lab_that_finds_too_little_room_says_so_and_leaves_nothing(
    small_run, two_hosts, traces, pages
):
    small_run.resize(pages * 4096)
    try:
        lab.up(two_hosts).down()
    except RunError as error:  # from some size on it comes up
        problem = error.what
    else:
        problem = f"{small_run.path}: No space left"
    assert re.search(f"{small_run.path}.*: No space left", problem)
    assert traces.gone(), traces.found()


def test_a_lab_goes_down_on_a_full_file_system(small_run, two_hosts, traces):
    lab.up(two_hosts).close()
    small_run.fill()
    runtime.down(two_hosts.name, print)
    assert traces.gone(), traces.found()


def announce(book, count):
    return [book.announce("file", name="x") for _ in range(count)]


def test_the_way_out_is_reserved(small_run, book):
    numbers = announce(book, 60)
    small_run.fill()
    book.enter_state("stopping")
    for number in numbers:
        book.strike(number)
    history = ledger.read(book.directory)
    assert (history.state, history.entries) == ("stopping", {})


def test_beyond_the_reserve_removal_goes_on_unwritten(small_run, book):
    numbers = announce(book, 1000)
    small_run.fill()
    book.enter_state("stopping")
    for number in numbers:
        book.strike(number)
    history = ledger.read(book.directory)
    assert 0 < len(history.entries) < 1000
    assert book.history.entries == {}
    book.destroy()
