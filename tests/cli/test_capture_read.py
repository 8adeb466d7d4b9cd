# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab capture -r`: the lines of a file are those of a capture that is under way."""

import gzip

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.telemetry.packet_lines import Lines
from tests.native.frames import CAPTURES

PCAP = CAPTURES / "rxe_verbs_nak.pcap"


def lab(*arguments):
    return CliRunner().invoke(app, ["capture", *map(str, arguments)])


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("read")
    small = ["--set", "workload.bytes=64KiB", "--transport", "csa_ud", "--seed", "1", "-q"]
    argv = ["run", "ring-all-reduce", *small, "-o", str(folder), "--capture"]
    assert CliRunner().invoke(app, argv).exit_code == 0
    return next((folder / "latest").glob("*.pcapng"))


def test_the_lines_are_those_of_a_live_capture(trace):
    done = lab("-r", trace)
    assert done.exit_code == 0
    live = Lines()
    content = trace.read_bytes()
    pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    assert done.stdout.splitlines() == [line for piece in pieces for line in live.of(piece)]
    assert any("[dropped" in line for line in done.stdout.splitlines())


def test_a_file_of_others_and_a_number_of_packets():
    whole = lab("-r", PCAP).output.splitlines()
    assert len(whole) == 77
    assert lab("-r", PCAP, "-c", "3").output.splitlines() == whole[:3]


def test_a_file_that_is_cut(trace, tmp_path):
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(trace.read_bytes()[:-7])
    done = lab("-r", cut)
    assert done.exit_code == 0
    assert done.output
    assert f"lab: {cut}: " in done.stderr


def test_mistakes(tmp_path):
    text = tmp_path / "text"
    text.write_text("no capture\n" * 100)
    packed = tmp_path / "trace.pcapng.gz"
    packed.write_bytes(gzip.compress(PCAP.read_bytes()))
    for arguments, words in (
        (("-r", tmp_path / "nothing"), "cannot be read: No such file"),
        (("-r", text), "give a pcap or pcapng file"),
        (("-r", packed), "gunzip"),
        (("-r", PCAP, "-w", "-"), "-w: no effect with -r FILE"),
        (("-r", PCAP, "h1"), "LINKS: no effect with -r FILE"),
        (("-r", PCAP, "--lab", "x"), "--lab: no effect with -r FILE"),
    ):
        done = lab(*arguments)
        assert done.exit_code == ExitCode.USAGE, arguments
        assert words in done.stderr, done.stderr
