# SPDX-License-Identifier: GPL-2.0-or-later
import contextlib
import os
import secrets
import subprocess
import threading
from pathlib import Path

import pytest

from softroce_lab.errors import UserError
from softroce_lab.fabric.net import netns


def own_namespace():
    return Path("/proc/thread-self/ns/net").stat().st_ino


@contextlib.contextmanager
def named():
    """A named namespace: its name, identity and a descriptor."""
    name = f"n{secrets.token_hex(3)}"
    netns.prepare_directory()
    fd, file = netns.create(), netns.unlinked_name()
    identity = netns.identify(fd, file)
    netns.publish(name, fd, file)
    os.close(file)
    try:
        yield name, identity, fd
    finally:
        netns.remove(name, identity)
        os.close(fd)


@pytest.fixture
def namespace():
    with named() as made:
        yield made


def test_only_the_calling_thread_enters(namespace):
    home, fd = own_namespace(), namespace[2]
    seen = []
    with netns.entered(fd):
        assert own_namespace() == os.fstat(fd).st_ino
        thread = threading.Thread(target=lambda: seen.append(own_namespace()))
        other = Path("/proc/self/ns/net").stat().st_ino  # the main thread's, which is this one
        thread.start()
        thread.join()
    assert other == os.fstat(fd).st_ino
    assert own_namespace() == home


def test_an_error_inside_leads_home(namespace):
    home = own_namespace()
    with pytest.raises(ZeroDivisionError), netns.entered(namespace[2]):
        1 / 0  # noqa: B018
    assert own_namespace() == home


def test_the_directory_is_a_shared_mount(namespace):
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    assert any(" /run/netns " in line and " shared:" in line for line in lines)


def test_removal_takes_the_name(namespace):
    name, identity, _ = namespace
    netns.remove(name, identity)
    assert not os.path.lexists(netns.DIRECTORY / name)
    netns.remove(name, identity)


def test_a_taken_name_is_refused(namespace):
    name, identity, fd = namespace
    with pytest.raises(UserError, match="exists already"):
        netns.refuse_taken([name])
    file = netns.unlinked_name()
    with pytest.raises(UserError, match="exists already"):
        netns.publish(name, fd, file)
    os.close(file)
    assert netns.opened(name, identity) is not None


def test_a_stranger_of_the_same_name_is_spared(namespace):
    name, identity, _ = namespace
    with named() as (_, other, _):
        netns.remove(name, other)
        assert netns.opened(name, other) is None
    fd = netns.opened(name, identity)
    assert fd is not None
    os.close(fd)


@pytest.mark.parametrize("published", [False, True])
def test_removal_of_what_a_crash_left_before_the_mount(published):
    netns.prepare_directory()
    name = f"n{secrets.token_hex(3)}"
    fd, file = netns.create(), netns.unlinked_name()
    identity = netns.identify(fd, file)
    if published:
        os.link(f"/proc/self/fd/{file}", netns.DIRECTORY / name, src_dir_fd=file)
    os.close(fd)
    os.close(file)
    netns.remove(name, identity)
    assert not os.path.lexists(netns.DIRECTORY / name)


def test_removal_spares_a_foreign_file(namespace):
    _, identity, _ = namespace
    path = netns.DIRECTORY / f"n{secrets.token_hex(3)}"
    path.write_text("a stranger's")
    netns.remove(path.name, identity)
    assert path.read_text() == "a stranger's"
    path.unlink()


def test_inhabitants_are_found(namespace):
    inode = namespace[1].inode
    assert netns.inhabitants([inode]) == {inode: []}
    with netns.entered(namespace[2]):
        sleeper = subprocess.Popen(["sleep", "60"])
    assert netns.inhabitants([inode]) == {inode: [sleeper.pid]}
    sleeper.kill()
    sleeper.wait()
