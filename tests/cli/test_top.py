# SPDX-License-Identifier: GPL-2.0-or-later
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest

from softroce_lab.paths import PROJECT_ROOT

COMMAND = [sys.executable, "-m", "softroce_lab.cli"]


@pytest.fixture
def busy(lab):
    """A lab with a ping that runs."""
    assert lab.up().returncode == 0
    # For two minutes, more than a test takes; nobody reads its lines, so they may not fill a pipe.
    arguments = (
        "inspect",
        "path",
        "h1",
        "h2",
        "--ping",
        "--lab",
        lab.name,
        "-c",
        "60000",
        "-i",
        "2ms",
    )
    with lab.start(*arguments, stdout=subprocess.DEVNULL) as ping:
        time.sleep(1)
        yield lab
        ping.send_signal(signal.SIGINT)
        ping.communicate(timeout=30)


def test_what_the_links_carry(busy):
    links = {
        link["name"]: link for link in busy.json("top", busy.name, "--interval", "500ms")["links"]
    }
    assert set(links) == {"h1->s1", "s1->h1", "h2->s1", "s1->h2"}
    for name, link in links.items():
        # 500 a second, and more where a late ping catches up; 1000 would be each of them twice.
        assert 50 < link["frames_per_second"] <= 750, name
        bits_a_frame = link["bits_per_second"] / link["frames_per_second"]
        assert bits_a_frame == pytest.approx(8 * 98, rel=0.01)  # 56 of data, ICMP, IP, Ethernet
        assert link["counts"]["emulator"] in (None, 0)


def test_plain_text_once_without_a_terminal(busy):
    result = busy.run("top", busy.name, "--interval", "200ms")
    assert result.returncode == 0
    assert "frames/s" in result.stdout
    assert "s1->h2" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_lab_is_watched_while_another_process_holds_it(busy):
    import softroce_lab.fabric.lab as fabric

    with fabric.Lab.open(busy.name):
        result = busy.run("top", busy.name, "--once", "--interval", "100ms")
    assert result.returncode == 0, result.stderr


def test_on_a_terminal_it_goes_on_until_it_is_interrupted(busy):
    terminal, inner = pty.openpty()
    watched = subprocess.Popen(
        [*COMMAND, "top", busy.name, "--interval", "100ms"],
        cwd=PROJECT_ROOT,
        env=os.environ | {"TERM": "xterm"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
    )
    os.close(inner)
    seen = bytearray()
    guard = threading.Timer(30, watched.kill)
    guard.start()
    try:
        while seen.count(b"frames/s") < 3:
            seen += os.read(terminal, 65536)
        watched.send_signal(signal.SIGINT)
        while True:
            seen += os.read(terminal, 65536)
    except OSError:  # the terminal's other end is closed
        pass
    guard.cancel()
    assert watched.wait() == 130
    assert seen.count(b"\x1b[?1049h") == seen.count(b"\x1b[?1049l") == 1
    os.close(terminal)


def test_an_interval_that_shows_only_itself(lab):
    lab.up()
    result = lab.run("top", lab.name, "--interval", "1ms")
    assert result.returncode == 2
    assert "50ms at least" in result.stderr
