# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab capture`: live packets as lines and as pcapng, and the lines of a file."""

import fcntl
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest
from typer.testing import CliRunner

from softroce_lab.cli.app import app
from softroce_lab.errors import ExitCode
from softroce_lab.telemetry import capture_file
from softroce_lab.telemetry.packet_lines import Lines
from tests.cli.conftest import COMMAND
from tests.native.frames import CAPTURES

PATIENCE_S = 40.0
PCAP = CAPTURES / "rxe_verbs_nak.pcap"


def first_line(fd):
    """Not a byte beyond it, for `communicate` would not know of that."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(fd, 1)):
        line += byte
    return line.decode()


class Running:
    """`lab capture`, which has begun."""

    def __init__(self, lab, *arguments, **options):
        self.process = lab.start("capture", *arguments, "--lab", lab.name, **options)
        self.begun = first_line(self.process.stderr.fileno())
        assert self.begun.startswith("lab: capturing "), self.begun + self.process.stderr.read()

    def interrupt(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.end()

    def end(self):
        stdout, stderr = self.process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess((), self.process.returncode, stdout, stderr)


def ping(lab, count=5):
    result = lab.ping("-c", str(count))
    assert f"{count} sent" in result.stdout, result.stderr


def test_packets_and_what_dropped_them_are_lines(up):
    running = Running(up, "s1->h2", "h2->s1")
    assert running.begun == "lab: capturing h2->s1, s1->h2; Ctrl-C ends it\n"
    ping(up, 3)
    for loss in ("100%", "periodic 1"):
        assert up.fault("set", "s1->h2", "loss", *loss.split()).returncode == 0
        up.ping("-c", "1", "-W", "10ms")
    up.fault("clear")
    result = running.interrupt()
    assert result.returncode == 0
    there, back = "s1->h2 10.0.0.1 > 10.0.0.2", "h2->s1 10.0.0.2 > 10.0.0.1"
    form = rf"\d\d:\d\d:\d\d\.\d{{9}} ({there}|{back}): ICMP, 98 bytes"
    *whole, random, periodic = result.stdout.splitlines()
    assert len(whole) == 6
    assert all(re.fullmatch(form, line) for line in whole), whole
    assert random.endswith("bytes  [dropped: random 100%, rule live:loss]")
    assert periodic.endswith("bytes  [dropped: periodic 1 1, rule live:loss]")
    assert result.stderr == "lab: 8 packets captured, 0 missed\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_file_of_whole_packets(up, tmp_path, number):
    path = tmp_path / "trace.pcapng"
    running = Running(up, "h1", "-w", str(path))
    ping(up)
    result = running.interrupt(number)
    assert result.returncode == 0
    assert result.stderr == f"lab: 10 packets captured, 0 missed: {path}\n"
    found = capture_file.read(path)
    assert [each.name for each in found.interfaces] == ["h1->s1", "s1->h1"]
    assert [(each.received, each.dropped) for each in found.interfaces] == [(5, 0), (5, 0)]
    assert set(found.packets["captured"].tolist()) == {98}


def test_so_many_packets_as_json(up, tmp_path):
    path = tmp_path / "trace.pcapng"
    running = Running(up, "*->h2", "-w", str(path), "-c", "3", "-s", "64", "--json")
    ping(up)
    assert json.loads(running.end().stdout) == {
        "schema_version": 1,
        "file": str(path),
        "captured": 3,
        "missed": 0,
        "error": None,
        "interfaces": [{"name": "s1->h2", "received": 3, "missed": 0}],
    }
    assert capture_file.read(path).packets["captured"].tolist() == [64] * 3


def test_for_so_long_quietly_into_a_file_of_the_user_behind_sudo(up, tmp_path):
    began, path = time.monotonic(), tmp_path / "trace.pcapng"
    command = [*COMMAND, "capture", "-D", "300ms", "-w", str(path), "-q", "--lab", up.name]
    sudo = os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    result = subprocess.run(command, env=sudo, capture_output=True, check=True)
    assert (result.stdout, result.stderr) == (b"", b"")
    assert time.monotonic() - began > 0.3
    assert len(capture_file.read(path).interfaces) == 4  # of all links
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


def test_standard_output_for_wireshark(up, tmp_path):
    path = tmp_path / "trace.pcapng"
    with path.open("wb") as file:
        process = subprocess.Popen(
            [*COMMAND, "capture", "s1->h2", "-w", "-", "-c", "4", "--lab", up.name],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr.readline().startswith(b"lab: capturing")
        flags = fcntl.fcntl(process.stdout.fileno(), fcntl.F_GETFL)
        ping(up)
        file.write(process.stdout.read())
        assert process.wait(PATIENCE_S) == 0
        assert not flags & os.O_NONBLOCK
        assert process.stderr.read() == b"lab: 4 packets captured, 0 missed\n"
    assert len(capture_file.read(path).packets) == 4
    master, slave = pty.openpty()
    command = [*COMMAND, "capture", "-w", "-", "--lab", up.name]
    result = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, text=True, check=False)
    os.close(master)
    os.close(slave)
    assert (result.returncode, "a terminal cannot show pcapng" in result.stderr) == (2, True)


def test_a_reader_that_has_seen_enough(up):
    readers = [Running(up, *arguments).process for arguments in ((), ("-w", "-"))]
    for process in readers:
        process.stdout.close()
    ping(up, 2)
    ping(up, 2)
    for process in readers:
        assert process.wait(PATIENCE_S) == 0
        process.stderr.close()


def test_a_lab_that_goes_down_ends_it(lab, tmp_path):
    path = tmp_path / "trace.pcapng"
    assert lab.up().returncode == 0
    running = Running(lab, "h2", "-w", str(path))
    ping(lab)
    assert lab.run("down", lab.name).returncode == 0
    result = running.end()
    assert (result.returncode, "10 packets captured" in result.stderr) == (0, True)
    assert len(capture_file.read(path).packets) == 10


def test_a_file_that_takes_no_more(up):
    """/dev/full has no room at all; what a full file system holds: tests/fabric."""
    result = Running(up, "h2", "-w", "/dev/full").end()
    assert result.returncode == 1
    assert "ended early: No space left on device" in result.stderr
    assert os.stat("/dev/full").st_uid == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("h9",), "matches no link"),
        (("h1->h2",), "matches no link"),
        (("-w", "/no/such/folder/file"), "cannot write /no/such/folder/file"),
        (("-s", "5000"), "snap length of 5000"),
        (("-D", "soon"), "soon"),
        (("--json",), "hint: add -w FILE"),
        (("-c", "-1"), "greater than"),
    ],
)
def test_what_cannot_be_captured(up, arguments, words):
    assert words in up.refused("capture", *arguments, "--lab", up.name)


# --- lab capture -r ------------------------------------------------------------------------------


def read(*arguments):
    return CliRunner().invoke(app, ["capture", "-r", *map(str, arguments)])


def test_the_lines_of_a_file_are_those_of_a_live_capture(tmp_path):
    small = ["--set", "workload.bytes=64KiB", "--transport", "csa_ud", "--seed", "1", "-q"]
    argv = ["run", "ring-all-reduce", *small, "-o", str(tmp_path), "--capture"]
    assert CliRunner().invoke(app, argv).exit_code == 0
    trace = next((tmp_path / "latest").glob("*.pcapng"))
    lines = read(trace).stdout.splitlines()
    live, content = Lines(), trace.read_bytes()
    pieces = [content[at : at + 1000] for at in range(0, len(content), 1000)]
    assert lines == [line for piece in pieces for line in live.of(piece)]
    assert any("[dropped" in line for line in lines)
    cut = tmp_path / "cut.pcapng"
    cut.write_bytes(content[:-7])
    done = read(cut)
    assert (done.exit_code, done.stdout.splitlines()) == (0, lines[: len(done.stdout.splitlines())])
    assert f"lab: {cut}: " in done.stderr


def test_a_file_of_others_and_a_number_of_packets():
    whole = read(PCAP).output.splitlines()
    assert len(whole) == 77
    assert read(PCAP, "-c", "3").output.splitlines() == whole[:3]


def test_files_that_cannot_be_read(tmp_path):
    text, packed = tmp_path / "text", tmp_path / "trace.pcapng.gz"
    text.write_text("no capture\n" * 100)
    packed.write_bytes(gzip.compress(PCAP.read_bytes()))
    for arguments, words in (
        ((tmp_path / "nothing",), "cannot be read: No such file"),
        ((text,), "give a pcap or pcapng file"),
        ((packed,), "gunzip"),
        ((PCAP, "h1"), "LINKS: no effect with -r FILE"),
        ((PCAP, "--lab", "x"), "--lab: no effect with -r FILE"),
    ):
        done = read(*arguments)
        assert done.exit_code == ExitCode.USAGE, arguments
        assert words in done.stderr, done.stderr
