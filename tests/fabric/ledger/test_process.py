# SPDX-License-Identifier: GPL-2.0-or-later
import os
import signal
import subprocess
import time

import pytest

from softroce_lab.fabric.ledger import ledger as ledgers
from softroce_lab.fabric.ledger import process
from softroce_lab.fabric.ledger.ledger import Ledger
from softroce_lab.fabric.net import netns


@pytest.fixture
def ledger(tmp_path):
    book = Ledger.begin(tmp_path / "labs" / "x", ephemeral=False)
    yield book
    for entry in book.history.of_kind("process"):
        known = process.recorded(entry)
        if known:
            known.end(1)
    book.close()


def test_it_runs_where_it_is_told_to(ledger):
    fd = netns.create()
    argv = ["readlink", "/proc/self/ns/net"]
    reader = process.spawn(ledger, argv, role="r", netns_fd=fd, stdout=subprocess.PIPE)
    assert reader.stdout.read().decode().strip() == f"net:[{os.fstat(fd).st_ino}]"
    assert reader.wait(60) == 0
    os.close(fd)


def test_the_ledger_knows_it_by_more_than_its_number(ledger):
    sleeper = process.spawn(ledger, ["sleep", "60"], role="sleeper")
    (entry,) = ledgers.read(ledger.directory).of_kind("process")
    assert process.recorded(entry) == sleeper.identity
    assert (entry.facts["role"], entry.facts["argv"]) == ("sleeper", ["sleep", "60"])
    assert sleeper.end() == -signal.SIGTERM
    assert ledgers.read(ledger.directory).of_kind("process") == []


@pytest.mark.parametrize("step", range(4))
def test_it_never_runs_unless_the_ledger_knows_it(ledger, tmp_path, step):
    """However far the starter gets before it stops, short of the last line."""
    mark = tmp_path / "mark"
    count = iter(range(5))

    def stop():
        if next(count) == step:
            raise KeyboardInterrupt

    ledger.on_step = stop
    with pytest.raises(KeyboardInterrupt):
        process.spawn(ledger, ["touch", str(mark)], role="toucher")
    time.sleep(0.3)
    assert not mark.exists()


def test_a_program_that_is_not_there(ledger):
    absent = process.spawn(ledger, ["/no/such"], role="absent", stderr=subprocess.PIPE)
    assert absent.wait(60) == 127
    assert absent.stderr.read() == b"/no/such: No such file or directory\n"


def test_streams_and_environment_are_passed_on(ledger):
    copier = process.spawn(
        ledger,
        ["sh", "-c", 'cat; printf "$WORD"'],
        role="copier",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"WORD": "end", "PATH": os.environ["PATH"]},
    )
    copier.stdin.write(b"begin ")
    copier.stdin.close()
    assert copier.stdout.read() == b"begin end"
    assert copier.wait(60) == 0


def test_a_broken_pipe_ends_it_as_usual(ledger):
    """Python ignores SIGPIPE; what it starts should not."""
    yes = process.spawn(ledger, ["yes"], role="yes", stdout=subprocess.PIPE)
    yes.stdout.close()
    assert yes.wait(60) == -signal.SIGPIPE
