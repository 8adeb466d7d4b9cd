# SPDX-License-Identifier: GPL-2.0-or-later
import xml.etree.ElementTree as ET

import pytest

from softroce_lab import junit
from softroce_lab.errors import UserError
from softroce_lab.junit import Case, Suite

SUITE = Suite(
    "packets \x00",
    [
        Case("check.rc", "passes"),
        Case("check.rc", "fails", "failure", "1 of 2", "rc.rule", "frame 3: bell \x07"),
        Case("check.rc", "cannot be decided", "skipped", "no occasion"),
        Case("check", "readable", "error", "cut short", "unreadable"),
    ],
)


def test_counts_are_those_of_the_cases(tmp_path):
    junit.write(tmp_path / "x.xml", "lab", [SUITE])
    suite = ET.parse(tmp_path / "x.xml").getroot()[0]  # noqa: S314 - our own
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "4", "failures": "1", "skipped": "1", "errors": "1"}


def test_characters_that_xml_forbids_are_replaced(tmp_path):
    junit.write(tmp_path / "x.xml", "lab", [SUITE])
    suite = ET.parse(tmp_path / "x.xml").getroot()[0]  # noqa: S314 - our own
    assert suite.get("name") == "packets \ufffd"
    assert suite[1].find("failure").text == "frame 3: bell \ufffd"


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        junit.write(tmp_path / "nowhere" / "x.xml", "lab", [SUITE])
