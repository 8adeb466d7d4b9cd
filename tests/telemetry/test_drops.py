# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor's drop log: what is read from a whole, growing, foreign and empty one.

tests/fabric/daemons/test_monitor.py reads one that the monitor wrote.
"""

from __future__ import annotations

import struct

import pytest

from softroce_lab.errors import RunError
from softroce_lab.telemetry.drops import DROP, read_drops

DROPS_HEAD = struct.pack("=8sII", b"LABDROP3", 16, 56)


def test_a_record_that_is_still_being_written_is_left_for_later(tmp_path):
    path = tmp_path / "drops.bin"
    path.write_bytes(DROPS_HEAD + struct.pack("=Q", 5).ljust(56, b"\0") + bytes(55))
    assert list(read_drops(path)["time_ns"]) == [5]


def test_of_a_span_the_first_moment_is_in_and_the_last_is_not(tmp_path):
    path = tmp_path / "drops.bin"
    path.write_bytes(
        DROPS_HEAD + b"".join(struct.pack("=Q", at).ljust(56, b"\0") for at in (4, 5, 6, 7))
    )
    assert list(read_drops(path, since_ns=5, until_ns=7)["time_ns"]) == [5, 6]


def test_no_records_is_no_error(tmp_path):
    path = tmp_path / "drops.bin"
    path.write_bytes(DROPS_HEAD)
    assert read_drops(path).dtype == DROP
    assert len(read_drops(path)) == 0


@pytest.mark.parametrize(
    "content", [b"", b"LABDROP3", b"LABCAPT2" + DROPS_HEAD[8:], DROPS_HEAD[:8] + bytes(8)]
)
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "drops.bin"
    path.write_bytes(content)
    with pytest.raises(RunError, match="not a file of this"):
        read_drops(path)
