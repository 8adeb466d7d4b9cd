# SPDX-License-Identifier: GPL-2.0-or-later
"""Comments that are written into a complete capture: which packets get them, and what stays."""

import ipaddress
import shutil

import numpy as np
import pytest

from softroce_lab.errors import RunError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.annotate import Note, annotate
from tests.check.plant import Frame, Tape

ELSEWHERE = ipaddress.IPv6Address("::ffff:10.9.9.9").packed


@pytest.fixture
def path(tmp_path):
    """Packets of two hosts at 1000 ns, 2000 ns and so on; the third has a comment already."""
    tape = Tape.of("rxe_verbs_loss")
    frames = [Frame(1000 * (n + 1), each.data) for n, each in enumerate(tape.frames[:20])]
    frames[2].comment = "dropped: random 1%, rule noise"
    made = tmp_path / "trace.pcapng"
    Tape(frames).write(made)
    return made


def ends(path):
    packets = capture_file.read(path).packets
    return bytes(packets["source"][0]), bytes(packets["destination"][0])


def comments(path):
    """By frame number."""
    capture = capture_file.read(path)
    return {
        int(row["number"]): capture.comments[row["comment"]]
        for row in capture.packets
        if row["comment"] >= 0
    }


def note(time_ns, address, text="moved"):
    return Note(time_ns, frozenset([address]), text)


def test_a_note_goes_to_the_first_packet_from_its_time_on(path):
    here, _ = ends(path)
    assert annotate(path, [note(4001, here), note(5000, here, "again"), note(6000, here)]) == 3
    assert comments(path) == {
        3: "dropped: random 1%, rule noise", 5: "moved\nagain", 6: "moved",
    }  # fmt: skip


def test_a_comment_that_was_there_comes_first(path):
    here, _ = ends(path)
    annotate(path, [note(2500, here)])
    assert comments(path) == {3: "dropped: random 1%, rule noise\nmoved"}


def test_behind_the_last_packet_it_goes_to_that(path):
    here, _ = ends(path)
    assert annotate(path, [note(10**9, here)]) == 1
    assert comments(path)[20] == "moved"


def test_hosts_that_are_not_there_have_no_packet(path):
    before = path.read_bytes()
    assert annotate(path, [note(0, ELSEWHERE)]) == 0
    assert annotate(path, []) == 0
    assert path.read_bytes() == before


def test_frames_and_times_stay(path, tmp_path):
    copy = tmp_path / "copy.pcapng"
    shutil.copy(path, copy)
    here, there = ends(path)
    annotate(path, [note(1000 * n, end, "ü" * n) for n in range(1, 25) for end in (here, there)])
    one, other = capture_file.read(copy), capture_file.read(path)
    names = [each for each in one.packets.dtype.names if each not in ("offset", "comment")]
    assert np.array_equal(one.packets[names], other.packets[names])
    assert [one.frame(n) for n in range(1, 21)] == [other.frame(n) for n in range(1, 21)]
    assert not other.notes
    assert not list(tmp_path.glob(".*"))


def test_what_cannot_be_written_is_an_error(path, monkeypatch):
    here, _ = ends(path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("softroce_lab.telemetry.annotate.shutil.copyfileobj", full)
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"cannot write comments into .*No space left"):
        annotate(path, [note(0, here)])
    assert path.read_bytes() == before
