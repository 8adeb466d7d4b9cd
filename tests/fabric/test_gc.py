# SPDX-License-Identifier: GPL-2.0-or-later
import os
import re
import subprocess

import pytest

from softroce_lab.fabric import lab, runtime
from softroce_lab.fabric.ledger import ledger, process
from softroce_lab.fabric.ledger.identity import ProcessIdentity, boot_id
from softroce_lab.fabric.net import netns, syscalls


def ignore(_):
    pass


def names(conditions):
    return [condition.name for condition in conditions]


def up(plan, **options):
    lab.up(plan, **options).close()


def in_a_child(action):
    """Run `action()` in a process that then ends without any cleaning up."""
    pid = os.fork()
    if pid == 0:
        try:
            action()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def test_an_ephemeral_lab_outlives_its_owners_lock_but_not_the_owner(two_hosts, traces):
    up(two_hosts, ephemeral=True)
    assert two_hosts.name not in names(runtime.collect(ignore).removed)
    runtime.down(two_hosts.name, ignore)
    in_a_child(lambda: up(two_hosts, ephemeral=True))
    assert "its owner, process" in runtime.examine(two_hosts.name).remains
    assert two_hosts.name in names(runtime.collect(ignore).removed)
    assert traces.gone(), traces.found()


def test_processes_of_a_dead_owner_are_ended(two_hosts, traces, eventually):
    def run():
        made = lab.up(two_hosts, ephemeral=True)
        made.spawn(["sleep", "60"], role="host", node="h1")

    in_a_child(run)
    *_, host = ledger.read(traces.directory).of_kind("process")
    identity = process.recorded(host)
    assert identity.is_alive()
    runtime.collect(ignore)
    assert eventually(lambda: not identity.is_alive())
    assert traces.gone(), traces.found()


def after_reboot(directory, *, bystander):
    """Turn a lab that is up into what a reboot leaves of it where /run is on a disk.

    `bystander` is a process that now has the number that the lab's monitor had.
    """
    for entry in ledger.read(directory).entries.values():
        if entry.kind == "netns":
            syscalls.umount(str(netns.DIRECTORY / entry.facts["name"]))
        elif entry.kind in ("bpffs", "tmpfs"):
            syscalls.umount(str(directory / entry.facts["name"]))
        elif entry.kind == "process":
            process.recorded(entry).end(2)
    path = directory / ledger.FILE
    text = path.read_text().replace(boot_id(), "another-boot")
    text = re.sub('"pid":[0-9]+', f'"pid":{bystander.pid}', text)
    path.write_text(re.sub('"start_ticks":[0-9]+', f'"start_ticks":{bystander.start_ticks}', text))


def test_after_a_reboot_files_go_and_processes_of_the_same_number_stay(two_hosts, traces):
    up(two_hosts)
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        after_reboot(traces.directory, bystander=ProcessIdentity.of(sleeper.pid))
        assert runtime.examine(two_hosts.name).remains == "it is of an earlier boot"
        assert traces.found()
        runtime.collect(ignore)
        assert traces.gone(), traces.found()
        assert sleeper.poll() is None
        sleeper.kill()


@pytest.fixture
def labs(monkeypatch, tmp_path):
    """A directory of labs of its own."""
    monkeypatch.setattr(runtime, "DIRECTORY", tmp_path / "labs")
    runtime.DIRECTORY.mkdir()
    return runtime.DIRECTORY


def damage(path):
    path.mkdir()
    (path / ledger.FILE).write_text("not json\n")


def tree(path):
    """Everything under `path`, which is no symbolic link."""
    found = [] if path.is_symlink() else path.rglob("*")
    return {each: each.read_bytes() if each.is_file() else None for each in found}


INTRUDERS = {
    "a damaged ledger": damage,
    "a foreign directory": lambda path: (path.mkdir(), (path / "diary").write_text("mine")),
    "a symbolic link": lambda path: path.symlink_to(path.parent.parent),
    "a dangling link": lambda path: path.symlink_to("/no/such"),
    "a file": lambda path: path.write_text("mine"),
    "a ledger that is a directory": lambda path: (path / ledger.FILE).mkdir(parents=True),
}


@pytest.mark.parametrize("intrude", INTRUDERS.values(), ids=INTRUDERS)
def test_what_no_lab_made_is_left_alone(labs, intrude):
    intrude(labs / "m")
    (labs / "a").mkdir()
    (labs / "z").mkdir()
    before = tree(labs / "m")
    output = []
    done = runtime.collect(output.append)
    assert (names(done.removed), done.failures) == (["a", "z"], [])
    assert runtime.examine("m").word == "unreadable"
    assert len(output) == 1
    assert f"{labs}/m" in output[0]
    assert os.path.lexists(labs / "m")
    assert tree(labs / "m") == before


@pytest.mark.parametrize("text", [None, b"", b'{"record":"la'])
def test_down_takes_away_a_claim_that_died_at_once(labs, text):
    (labs / "a").mkdir()
    if text is not None:
        (labs / "a" / ledger.FILE).write_bytes(text)
    runtime.down("a", ignore)
    assert not labs.exists()
