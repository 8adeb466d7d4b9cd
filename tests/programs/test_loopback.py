# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that talks with itself, by its RNIC, and forks meanwhile."""

import contextlib
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from softroce_lab import paths
from softroce_lab.fabric.net.owner import PortOwner
from tests.labs import eventually
from tests.programs.pair import TIMEOUT_S, ended, finished
from tests.programs.test_device import name_of

SOURCE = Path(__file__).with_name("loopback.c")
ALONE = "device softroce0\nguid 0x1\ngid ::ffff:10.0.0.1\npath_mtu 1024\n"


@pytest.fixture(scope="module")
def program(pair, tmp_path_factory):
    made = tmp_path_factory.mktemp("loopback") / "loopback"
    subprocess.run(["cc", "-Wall", "-Werror", SOURCE, "-o", made, paths.verbs_library()],
                   check=True, timeout=TIMEOUT_S)  # fmt: skip
    return made


def test_with_a_port(pair, program):
    done = pair.run("h1", program, "200", "100")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_port_that_another_process_has_alone_is_busy(pair, program):
    """By errno; and standard error names who has it."""
    with pair.lab.enter("h1"):
        owner = PortOwner("eth1")
    with owner:
        refused = pair.run("h1", program, "200", "100")
    assert refused.returncode == 5
    assert f"in use by process {os.getpid()} (" in refused.stderr
    assert f"ibv_create_qp: {os.strerror(errno.EBUSY)}" in refused.stderr


@pytest.mark.parametrize("way", ["exit", "_exit"])
def test_who_ends_in_the_middle_of_traffic_leaves_nothing(pair, program, way):
    assert pair.run("h1", program, "200", "100", way).returncode == 0
    done = pair.run("h1", program, "200", "100")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def holds_pipes_alone(pid):
    """Seen from another root directory a device has that in front, or no folder."""
    with contextlib.suppress(FileNotFoundError):  # closed meanwhile
        fds = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]
        return all(each.startswith("pipe:") or each.endswith("/null") for each in fds)
    return False


def test_who_becomes_another_program_leaves_nothing(pair, program):
    """The port is free while that program runs, which holds nothing of the RNIC."""
    with ended(pair.start("h1", program, "200", "100", "exec")) as process:
        assert eventually(lambda: name_of(process.pid) == "sleep", timeout_s=TIMEOUT_S)
        # Its start opens files of its own for a moment.
        assert eventually(lambda: holds_pipes_alone(process.pid), timeout_s=TIMEOUT_S)
        assert "softroce" not in Path(f"/proc/{process.pid}/maps").read_text()
        assert len(list(Path(f"/proc/{process.pid}/task").iterdir())) == 1
        done = pair.run("h1", program, "200", "100")
        assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


@pytest.fixture
def alone(program, tmp_path):
    """Runs it with an RNIC of these settings, without a host."""
    settings = tmp_path / "settings"
    libraries = str(paths.verbs_library().parent)
    environment = {"SOFTROCE_VERBS": str(settings), "LD_LIBRARY_PATH": libraries}

    def run(text):
        settings.write_text(text)
        return subprocess.run([program, "200", "100"], env=environment, capture_output=True,
                              text=True, timeout=TIMEOUT_S)  # fmt: skip

    return run


def test_without_a_port_or_a_lab(alone):
    done = alone(ALONE)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_settings_of_another_version_are_no_device(alone):
    done = alone(ALONE + "colour blue\n")
    assert done.returncode == 3
    assert "settings:5: 'colour blue' is not a setting of this version" in done.stderr


EXITS = """
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
static void on_alarm(int number) { exit(number); }
int main(void) {
  struct ibv_context *context = ibv_open_device(ibv_get_device_list(NULL)[0]);
  struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
  struct ibv_wc wc;
  struct itimerval soon = {.it_value.tv_usec = 20000};
  signal(SIGALRM, on_alarm);
  setitimer(ITIMER_REAL, &soon, NULL);
  for (;;) ibv_poll_cq(cq, 1, &wc);
}
"""
EXITS_TRIES = 10  # in most of them, a poll is interrupted that has the engine's lock


def test_a_handler_of_a_signal_that_calls_exit_ends_the_process(pair, tmp_path):
    """As libinfinipath's of SIGTERM does, which libfabric loads."""
    source, made, settings = (tmp_path / name for name in ("exits.c", "exits", "settings"))
    source.write_text(EXITS)
    settings.write_text(ALONE)
    subprocess.run(["cc", "-Wall", "-Werror", source, "-o", made, paths.verbs_library()],
                   check=True, timeout=TIMEOUT_S)  # fmt: skip
    libraries = str(paths.verbs_library().parent)
    for _ in range(EXITS_TRIES):
        done = subprocess.run(
            [made], env={"SOFTROCE_VERBS": str(settings), "LD_LIBRARY_PATH": libraries},
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        assert done.returncode == signal.SIGALRM


def test_the_example_of_ones_own_program(pair, tmp_path):
    """As docs/howto/programs.md has it, over a link that loses packets."""
    put = tmp_path / "put"
    source = paths.PROJECT_ROOT / "examples/programs/put.c"
    subprocess.run(["cc", "-O2", "-o", put, source, "-libverbs"], check=True, timeout=TIMEOUT_S)
    pair.lose("1%")
    with ended(pair.start("h2", put)) as server:
        pair.await_listener(server)
        client = pair.run("h1", put, "h2", "put here by RDMA")
        assert client.returncode == 0, client.stderr
        assert finished(server).stdout == "put here by RDMA\n"
