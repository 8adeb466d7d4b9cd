# SPDX-License-Identifier: GPL-2.0-or-later
"""`lab capture`, and `--capture` of the verbs that run something."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from softroce_lab.telemetry import capture_file
from tests.cli.conftest import COMMAND, CommandLine
from tests.labs import prepare_verbs

PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def up():
    """One lab for all tests here; what they capture ends with them."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    line = CommandLine()
    assert line.up().returncode == 0
    yield line
    assert line.run("down", line.name).returncode == 0
    assert line.traces() == []


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
    result = lab.run("ping", "h1", "h2", "-c", str(count), "-i", "1ms", "--lab", lab.name)
    assert f"{count} sent" in result.stdout, result.stderr


def frames(path):
    return len(capture_file.read(path).packets)


def test_packets_are_lines(up):
    running = Running(up, "s1->h2", "h2->s1")
    assert running.begun == "lab: capturing h2->s1, s1->h2; Ctrl-C ends it\n"
    ping(up, 3)
    result = running.interrupt()
    assert result.returncode == 0
    there, back = "s1->h2 10.0.0.1 > 10.0.0.2", "h2->s1 10.0.0.2 > 10.0.0.1"
    form = rf"\d\d:\d\d:\d\d\.\d{{9}} ({there}|{back}): ICMP, 98 bytes"
    lines = result.stdout.splitlines()
    assert len(lines) == 6
    assert all(re.fullmatch(form, line) for line in lines), lines
    assert result.stderr == "lab: 6 packets captured, 0 missed\n"


def test_faults_that_come_and_go_meanwhile_are_in_the_lines(up):
    running = Running(up, "s1->h2")
    for loss in ("100%", "periodic 1"):
        fault = up.run("fault", "set", "s1->h2", "loss", *loss.split(), "--lab", up.name)
        assert fault.returncode == 0, fault.stderr
        up.run("ping", "h1", "h2", "-c", "1", "-W", "10ms", "--lab", up.name)
    up.run("fault", "clear", "--lab", up.name)
    ping(up, 1)
    lines = running.interrupt().stdout.splitlines()
    output = [line.partition("bytes")[2] for line in lines]
    rule = "rule live:loss]"
    assert output == [f"  [dropped: random 100%, {rule}", f"  [dropped: periodic 1 1, {rule}", ""]


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
    document = json.loads(running.end().stdout)
    assert document == {
        "schema_version": 1,
        "file": str(path),
        "captured": 3,
        "missed": 0,
        "error": None,
        "interfaces": [{"name": "s1->h2", "received": 3, "missed": 0}],
    }
    assert capture_file.read(path).packets["captured"].tolist() == [64] * 3


def test_for_so_long_and_quietly(up, tmp_path):
    began = time.monotonic()
    path = tmp_path / "trace.pcapng"
    result = up.run("capture", "-D", "300ms", "-w", str(path), "-q", "--lab", up.name)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - began > 0.3
    assert len(capture_file.read(path).interfaces) == 4  # of all links


def test_standard_output_for_wireshark(up, tmp_path):
    with (tmp_path / "trace.pcapng").open("wb") as file:
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
    assert frames(tmp_path / "trace.pcapng") == 4


def test_a_reader_that_has_seen_enough(up):
    readers = [Running(up, *arguments).process for arguments in ((), ("-w", "-"))]
    for process in readers:
        process.stdout.close()
    ping(up, 2)
    ping(up, 2)
    for process in readers:
        assert process.wait(PATIENCE_S) == 0
        process.stderr.close()


def test_a_terminal_gets_no_pcapng(up):
    master, slave = pty.openpty()
    command = [*COMMAND, "capture", "-w", "-", "--lab", up.name]
    result = subprocess.run(command, stdout=slave, stderr=subprocess.PIPE, text=True, check=False)
    os.close(master)
    os.close(slave)
    assert result.returncode == 2
    assert "nothing for a terminal" in result.stderr


def test_two_at_once_and_one_that_is_killed(up, tmp_path):
    first, second = tmp_path / "1.pcapng", tmp_path / "2.pcapng"
    killed = Running(up, "h2", "-w", str(first))
    other = Running(up, "h2", "-w", str(second))
    ping(up)
    time.sleep(0.1)
    killed.process.kill()
    killed.end()
    ping(up)
    assert "20 packets captured" in other.interrupt().stderr
    found = capture_file.read(first)
    assert len(found.packets) == 10
    assert [each.received for each in found.interfaces] == [5, 5]


def test_a_lab_that_goes_down_ends_it(lab, tmp_path):
    path = tmp_path / "trace.pcapng"
    assert lab.up().returncode == 0
    running = Running(lab, "h2", "-w", str(path))
    ping(lab)
    assert lab.run("down", lab.name).returncode == 0
    result = running.end()
    assert result.returncode == 0
    assert "10 packets captured, 0 missed" in result.stderr
    assert frames(path) == 10


def test_a_file_that_takes_no_more(up, tmp_path):
    """/dev/full has no room at all; what a full file system holds: tests/fabric."""
    running = Running(up, "h2", "-w", "/dev/full")
    result = running.end()
    assert result.returncode == 1
    assert "ended early: No space left on device" in result.stderr
    assert os.stat("/dev/full").st_uid == 0


def test_files_belong_to_the_user_behind_sudo(up, tmp_path):
    path = tmp_path / "trace.pcapng"
    command = [*COMMAND, "capture", "-w", str(path), "-D", "0.01", "--lab", up.name]
    sudo = os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"}
    assert subprocess.run(command, env=sudo, capture_output=True, check=False).returncode == 0
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65534)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("h9",), "matches no link"),
        (("h1->h2",), "matches no link"),
        (("-w", "/no/such/folder/file"), "cannot write /no/such/folder/file"),
        (("-s", "5000"), "snap length of 5000"),
        (("-D", "soon"), "soon"),
        (("--json",), "--json wants -w FILE"),
        (("-c", "-1"), "greater than"),
    ],
)
def test_what_cannot_be_captured(up, arguments, words):
    result = up.run("capture", *arguments, "--lab", up.name)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_without_a_lab(lab):
    assert "there is no lab called" in lab.run("capture", "--lab", lab.name).stderr


def test_capture_of_a_measurement(up, tmp_path):
    prepare_verbs()
    path = tmp_path / "trace.pcapng"
    arguments = ("perf", "send_lat", "h1", "h2", "--lab", up.name, "--json")
    options = ("--capture", "*->h2", "--capture", "s1->h1", "--capture-file", str(path))
    result = up.run(*arguments, *options, "--", "-n", "50")
    assert result.returncode == 0, result.stderr
    seen = capture_file.read(path)
    assert [each.name for each in seen.interfaces] == ["s1->h1", "s1->h2"]
    assert json.loads(result.stdout)["capture"]["captured"] == len(seen.packets) >= 2 * 50
    assert f"0 missed: {path}" in result.stderr
