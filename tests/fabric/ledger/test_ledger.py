# SPDX-License-Identifier: GPL-2.0-or-later
import os
import subprocess
import sys

import pytest

from softroce_lab.errors import LabError
from softroce_lab.fabric.ledger import ledger
from softroce_lab.fabric.ledger.identity import ProcessIdentity
from softroce_lab.fabric.ledger.ledger import LabBusyError, Ledger, LedgerDamagedError


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "labs" / "x"


@pytest.fixture
def fresh(directory):
    book = Ledger.begin(directory, ephemeral=False)
    yield book
    book.close()


def test_an_ephemeral_lab_names_its_owner(directory):
    book = Ledger.begin(directory, ephemeral=True)
    book.close()
    assert ledger.read(directory).owner == ProcessIdentity.of(os.getpid())


def test_objects_come_learn_their_identity_and_go(fresh, directory):
    first = fresh.announce("netns", name="x-h1")
    second = fresh.announce("process", role="monitor")
    fresh.identify(second, pid=7)
    fresh.strike(first)
    (entry,) = ledger.read(directory).entries.values()
    assert (entry.id, entry.kind, entry.facts) == (second, "process", {"role": "monitor", "pid": 7})
    assert fresh.history.of_kind("process") == [entry]
    assert fresh.history.of_kind("netns") == []


def test_numbers_are_never_used_twice(fresh, directory):
    fresh.strike(fresh.announce("file", name="a"))
    fresh.close()
    again = Ledger.resume(directory)
    assert again.announce("file", name="b") == 1
    again.close()


def test_a_torn_line_was_never_written(fresh, directory):
    fresh.announce("file", name="whole")
    fresh.close()
    path = directory / ledger.FILE
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"record":"object","id":1,"kind":"fi')
    assert len(ledger.read(directory).entries) == 1
    resumed = Ledger.resume(directory)
    assert path.read_bytes() == whole
    resumed.announce("file", name="next")
    resumed.close()
    assert [e.facts["name"] for e in ledger.read(directory).entries.values()] == ["whole", "next"]


def test_one_writer_at_a_time(fresh, directory):
    with pytest.raises(LabBusyError, match="working on the lab x"):
        ledger.lock(directory, patience_s=0)
    fresh.close()
    os.close(ledger.lock(directory, patience_s=0))


def test_the_lock_of_a_dead_writer_is_free(directory):
    code = (
        "import os, sys; from pathlib import Path\n"
        "from softroce_lab.fabric.ledger.ledger import Ledger\n"
        "Ledger.begin(Path(sys.argv[1]), ephemeral=True); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(directory)], timeout=60, check=False)
    os.close(ledger.lock(directory, patience_s=0))
    assert not ledger.read(directory).owner.is_alive()


def test_steps_are_reported_around_every_line(directory):
    sizes = []
    path = directory / ledger.FILE
    book = Ledger.begin(
        directory,
        ephemeral=False,
        on_step=lambda: sizes.append(len(path.read_bytes().split(b"\n"))),
    )
    book.announce("file", name="a")
    book.close()
    assert sizes == [1, 2, 2, 3]


def test_destroying_spares_another_lab(fresh, directory):
    other = Ledger.begin(directory.parent / "y", ephemeral=False)
    fresh.destroy()
    assert sorted(p.name for p in directory.parent.iterdir()) == ["y"]
    other.close()


def test_a_foreign_file_stops_the_destruction(fresh, directory):
    (directory / "diary").write_text("mine")
    with pytest.raises(LabError, match="did not make: diary"):
        fresh.destroy()
    assert ledger.read(directory).header["name"] == "x"


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe",
        b"[]",
        b'{"record":"diary"}',
        b'{"record":"gone","id":7}',
        b'{"record":"state","state":"sideways"}',
        b'{"record":"lab","format":2}',
        b'{"record":"object","kind":"file"}',
    ],
)
def test_a_damaged_line_is_named(fresh, directory, line):
    fresh.close()
    with (directory / ledger.FILE).open("ab") as file:
        file.write(line + b"\n")
    before = (directory / ledger.FILE).read_bytes()
    for reader in (ledger.read, Ledger.resume):
        with pytest.raises(LedgerDamagedError, match=r"line 2 of .*ledger\.jsonl is damaged"):
            reader(directory)
    assert (directory / ledger.FILE).read_bytes() == before
    os.close(ledger.lock(directory, patience_s=0))


def test_a_ledger_begins_with_its_header(directory):
    directory.mkdir(parents=True)
    (directory / ledger.FILE).write_text('{"record":"state","state":"up"}\n')
    with pytest.raises(LedgerDamagedError, match="line 1"):
        ledger.read(directory)


def test_resuming_makes_no_ledger(directory):
    directory.mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        Ledger.resume(directory)
    assert list(directory.iterdir()) == []
    os.close(ledger.lock(directory, patience_s=0))


def test_nobody_else_may_open_the_directory(fresh, directory):
    """Or any user could lock the lab, and keep it from going down."""
    assert directory.stat().st_mode & 0o777 == 0o700
