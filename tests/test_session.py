# SPDX-License-Identifier: GPL-2.0-or-later
"""A session of tests has a /run, temporary files and leftovers of its own."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from softroce_lab.paths import LABS, PROJECT_ROOT
from tests import labs, session
from tests.labs import needs_root  # noqa: F401

ENTER = "from tests import session; leave = session.enter()\n"
HOLD = """
import os, socket, sys
from softroce_lab.fabric.bpf import libbpf
name = socket.socket(socket.AF_UNIX)
name.bind("\\0softroce-" + sys.argv[1])
network = os.open("/proc/self/ns/net", os.O_RDONLY)
with libbpf.probe_map(2, 4, 4, 1):
    print("ready", flush=True)
    sys.stdin.read()
"""


def child(script, *arguments):
    return subprocess.Popen([sys.executable, "-c", script, *arguments], cwd=PROJECT_ROOT, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip


def printed(script, *arguments):
    with child(script, *arguments) as process:
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return stdout.splitlines()


def test_this_is_one():
    assert session.RUN.is_mount()
    assert Path(os.environ["TMPDIR"]).name.startswith("lab-tests-")


@pytest.fixture
def entries():
    """A file, a folder and a link in our /run, and a lab."""
    name = f"s{secrets.token_hex(3)}"
    file, folder, link = (session.RUN / f"{name}{kind}" for kind in "fdl")
    lab = LABS / name
    file.write_text("text")
    folder.mkdir()
    (folder / "inside").touch()
    link.symlink_to(file)
    lab.mkdir(parents=True)
    yield file, folder, link, lab
    file.unlink()
    (folder / "inside").unlink()
    folder.rmdir()
    link.unlink()
    lab.rmdir()


def test_run_of_another_has_all_but_our_labs(entries):
    file, _, _, lab = entries
    script = (
        f"{ENTER}import os, pathlib, sys\n"
        "file, folder, link, lab = map(pathlib.Path, sys.argv[1:])\n"
        "print(file.read_text(), os.listdir(folder), os.readlink(link), lab.exists())\n"
        "lab.with_name('theirs').mkdir(parents=True)\n"
        "(folder.parent / 'theirs').touch()\n"
    )
    output = printed(script, *map(str, entries))
    assert output == [f"text ['inside'] {file} False"]
    assert not lab.with_name("theirs").exists()
    assert not (session.RUN / "theirs").exists()


def test_temporary_files_are_gone_at_the_end():
    script = (
        f"{ENTER}import os, tempfile\n"
        "name = tempfile.mkdtemp()\n"
        "print(os.path.dirname(name), os.environ['TMPDIR'])\n"
        "leave()\n"
        "print(os.path.exists(os.environ['TMPDIR']))\n"
    )
    folders, exists = printed(script)
    theirs, variable = folders.split()
    assert theirs == variable != os.environ["TMPDIR"]
    assert exists == "False"


@pytest.mark.parametrize(("begin", "found"), [("", True), (ENTER, False)], ids=["here", "another"])
def test_only_what_a_process_of_this_session_holds_is_left_behind(begin, found):
    before = labs.leftovers()
    with child(begin + HOLD, name := secrets.token_hex(3)) as process:
        assert process.stdout.readline() == "ready\n"
        left = labs.leftovers() - before
        process.communicate("", timeout=60)
    kinds = {each.split()[0].partition(":")[0] for each in left}
    assert kinds == ({"map_id", "net", "socket", "process"} if found else set()), left
    assert any(name in each for each in left) == found
    assert labs.eventually(lambda: labs.leftovers() == before)
