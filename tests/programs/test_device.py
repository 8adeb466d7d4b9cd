# SPDX-License-Identifier: GPL-2.0-or-later
"""The device that programs find, and who does not find it."""

import contextlib
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from softroce_lab.programs.device import device
from tests.labs import eventually
from tests.programs.pair import TIMEOUT_S, ended, finished, gid_text


def test_the_device_has_the_hosts_addresses(pair):
    shown = pair.run("h1", "ibv_devinfo", "-v")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"hca_id:\s+softroce0", shown.stdout)
    assert "PORT_ACTIVE" in shown.stdout
    for index in range(2):
        line = rf"GID\[ +{index}\]:\s+{re.escape(gid_text(pair.address('h1', index)))}, RoCE v2"
        assert re.search(line, shown.stdout), shown.stdout


def test_looking_at_the_device_does_not_take_the_port(pair):
    with ended(pair.start("h1", "ibv_asyncwatch")) as watching:
        assert eventually(lambda: in_the_library(watching.pid))
        assert pair.run("h1", "ibv_devinfo").returncode == 0
        with pair.sending("h1", 100 * 4096):
            pair.converse("ibv_rc_pingpong", "-g", "0", "-n", "100")


def in_the_library(pid):
    return "libibverbs.so.1" in Path(f"/proc/{pid}/maps").read_text()


def test_without_the_flag_there_is_no_device(pair):
    for directory in ("/dev/infiniband", "/sys/class/infiniband"):
        here = os.path.exists(directory)
        there = pair.run("h1", "test", "-e", directory, verbs=False).returncode == 0
        assert there == here
        assert pair.run("h1", "test", "-e", directory).returncode == 0
    listed = pair.run("h1", "ibv_devices", verbs=False)
    assert device.name(0) not in listed.stdout + listed.stderr


def test_a_program_with_a_clean_environment_has_the_device(pair):
    assert device.name(0) in pair.run("h1", "env", "-i", "ibv_devices").stdout


def test_preload_comes_before_a_library_of_the_programs_own(pair, run_lab):
    """Without it, a program whose own library has another name gets that one's functions."""
    look = "import ctypes; ctypes.CDLL(None).ibv_get_device_list, ctypes.CDLL(None).rdma_listen"
    program = ["h1", "--", "/usr/bin/python3", "-c", look]
    assert run_lab("exec", "--lab", pair.name, "--preload", *program).returncode == 0
    assert run_lab("exec", "--lab", pair.name, "--verbs", *program).returncode == 1


WITHIN = """
files() { find /dev/infiniband /sys/class/infiniband -printf '%p %i %s %T@\\n' | sort; }
before=$(files)
"$@" exec --verbs h2 -- ibv_devinfo -v || exit
test "$before" = "$(files)" || exit 100
test "$("$@" exec h2 -- ls /sys/class/infiniband)" = softroce0 || exit 101
test "$before" = "$(files)" || exit 102
"""


def test_the_rnic_of_a_machine_is_out_of_sight_and_untouched(pair):
    """That machine is h1 here: it has a device, and starts a program at h2."""
    lab = ["env", f"LAB={pair.name}", sys.executable, "-m", "softroce_lab.cli"]
    shown = pair.run("h1", "sh", "-c", WITHIN, "sh", *lab)
    assert shown.returncode == 0, shown.stderr
    assert gid_text(pair.address("h2")) in shown.stdout
    assert gid_text(pair.address("h1")) not in shown.stdout


def test_dev_and_sys_keep_what_is_in_them(pair):
    script = "ls -A /dev /sys/class | sort; test -t 0 || echo hello >/dev/null && cat /dev/null"
    script += "; readlink -f /sys/class/net/lo; touch /dev/shm"
    seen = pair.run("h1", "sh", "-c", script)
    assert seen.returncode == 0, seen.stderr
    for directory in ("/dev", "/sys/class"):
        assert set(os.listdir(directory)) <= set(seen.stdout.split())
    assert "/sys/devices/virtual/net/lo" in seen.stdout


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_mounted_goes_with_the_program(pair, end):
    before = Path("/proc/self/mountinfo").read_text()
    with ended(pair.start("h1", "sleep", "60")) as process:
        # Until it is the program's own process, a signal ends the command that started it.
        assert eventually(lambda: name_of(process.pid) == "sleep", timeout_s=60)
        assert "softroce_lab /dev " in mounts(process.pid)
        assert Path("/proc/self/mountinfo").read_text() == before
        namespace = mount_namespace(process.pid)
        assert namespace != mount_namespace("self")
        process.send_signal(end)
        assert finished(process).returncode == -end
    assert Path("/proc/self/mountinfo").read_text() == before
    # It is gone with the last process in it, the connection manager's beside the program.
    assert eventually(lambda: namespace not in all_mount_namespaces(), timeout_s=TIMEOUT_S)


def mount_namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/mnt")


def all_mount_namespaces():
    """Of all threads and of all files that hold one open: what any of them has is still there."""
    found = set()
    for link in (*Path("/proc").glob("[0-9]*/ns/mnt"), *Path("/proc").glob("[0-9]*/fd/*")):
        with contextlib.suppress(OSError):  # it has just ended
            found.add(os.readlink(link))
    return found


def name_of(pid):
    return Path(f"/proc/{pid}/comm").read_text().strip()


def mounts(pid):
    return Path(f"/proc/{pid}/mounts").read_text()


def test_only_hosts_have_an_rnic(pair):
    refused = pair.run("s1", "true")
    assert refused.returncode == 2
    assert "s1 has no soft RNIC" in refused.stderr
