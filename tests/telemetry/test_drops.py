# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor's files: what is read from whole, growing, foreign and empty ones.

tests/fabric/test_monitor.py reads files that the monitor wrote.
"""

from __future__ import annotations

import struct

import pytest

from softroce_lab.errors import RunError
from softroce_lab.telemetry.drops import DROP, CapturedPacket, read_captures, read_drops

DROPS_HEAD = struct.pack("=8sII", b"LABDROP2", 16, 56)
CAPTURE_HEAD = struct.pack("=8sII", b"LABCAPT2", 16, 32)


def test_a_record_that_is_still_being_written_is_left_for_later(tmp_path):
    path = tmp_path / "drops.bin"
    path.write_bytes(DROPS_HEAD + struct.pack("=Q", 5).ljust(56, b"\0") + bytes(55))
    assert list(read_drops(path)["time_ns"]) == [5]


def test_a_capture_that_is_still_being_written_is_left_for_later(tmp_path):
    path = tmp_path / "capture.bin"
    whole = struct.pack("=QIIIIII", 5, 1, 0xFFFFFFFF, 100, 3, 2, 0) + b"abc"
    cut = struct.pack("=QIIIIII", 6, 1, 2, 100, 3, 1, 0) + b"ab"
    for rest in (b"", cut, cut[:7]):
        path.write_bytes(CAPTURE_HEAD + whole + rest)
        assert list(read_captures(path)) == [CapturedPacket(5, 1, None, 2, 100, b"abc")]


def test_captures_of_a_span_of_time(tmp_path):
    path = tmp_path / "capture.bin"
    records = (struct.pack("=QIIIIII", t, 1, 7, 100, 1, 1, 0) + b"x" for t in range(10))
    path.write_bytes(CAPTURE_HEAD + b"".join(records))
    found = list(read_captures(path, since_ns=3, until_ns=6))
    assert [packet.time_ns for packet in found] == [3, 4, 5]
    assert {packet.rule_id for packet in found} == {7}


def test_no_records_is_no_error(tmp_path):
    path = tmp_path / "drops.bin"
    path.write_bytes(DROPS_HEAD)
    assert read_drops(path).dtype == DROP
    assert len(read_drops(path)) == 0


@pytest.mark.parametrize("content", [b"", b"LABDROP2", CAPTURE_HEAD, DROPS_HEAD[:8] + bytes(8)])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "drops.bin"
    path.write_bytes(content)
    with pytest.raises(RunError, match="not a file of this"):
        read_drops(path)
