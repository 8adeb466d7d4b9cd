# SPDX-License-Identifier: GPL-2.0-or-later
"""A capture of anybody's, through `lab verify`: as it is, and with its ICRCs put right.

Its frames also as `lab capture` prints them.

Frames with a wrong ICRC are nobody's, and no checker would ever look at what is in them.
"""

from __future__ import annotations

import json
from pathlib import Path

from softroce_lab import _native
from softroce_lab.check import report, suites
from softroce_lab.check.evidence import Evidence
from softroce_lab.check.suites import Format
from softroce_lab.dissect import exhibit
from softroce_lab.errors import UserError
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packet_lines import Lines
from softroce_lab.telemetry.packets import Has
from tests.parser_fuzz.files import file_of, must_name

_SHOWN = 2
_NAME = "some.pcap"
_JUNIT = Path("/dev/null")
_RULES = suites.chosen(())
_ICRC_BYTES = 4
_SEEN = Has.WHOLE | Has.ICRC_CHECKED


def one(data: bytes) -> None:
    """Read it, and let every checker say what it has to."""
    path = file_of(_NAME, data)
    try:
        capture = capture_file.read(path)
    except UserError as error:
        must_name(path, error)
        return
    _check(Evidence(capture))
    "\n".join(Lines().of(data)).encode()
    mended = _mended(data, capture)
    if mended != data:
        _check(Evidence(capture_file.read(file_of(_NAME, mended))))


def _check(evidence: Evidence) -> None:
    packets = evidence.packets
    assert (packets["captured"] <= packets["length"]).all()
    assert (packets["interface"] < len(evidence.capture.interfaces)).all()
    assert (packets["comment"] < len(evidence.capture.comments)).all()
    verdicts = suites.check(evidence, _RULES, Format.AUTO)
    checked = report.Checked(_NAME, evidence, tuple(verdicts))
    "\n".join(report.lines(checked, _SHOWN)).encode()
    json.dumps(report.document(checked))
    report.write_junit(_JUNIT, [checked])
    for number in evidence.packets["number"][:20].tolist():
        capture = evidence.capture
        frame = capture.frame(number)
        exhibit.show(frame)  # also of those that no checker exhibits
        assert len(capture.payload(number)) <= len(frame)


def _mended(data: bytes, capture: capture_file.Capture) -> bytes:
    """The file with right ICRCs in its Ethernet frames."""
    changed = bytearray(data)
    for row in capture.packets:
        wrong = row["has"] & (_SEEN | Has.ICRC_GOOD) == _SEEN
        if wrong and capture.interfaces[row["interface"]].link_type == 1:
            begin, end = int(row["offset"]), int(row["offset"] + row["captured"])
            icrc = _native.icrc(data[begin:end]).to_bytes(_ICRC_BYTES, "little")
            changed[end - _ICRC_BYTES : end] = icrc
    return bytes(changed)
