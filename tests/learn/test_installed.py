# SPDX-License-Identifier: GPL-2.0-or-later
"""A student's machine: a wheel in a fresh virtual environment, a user without rights, no bcc.

In short the wheel holds this checkout's files and its native module, and the environment borrows
what the package requires; in full pip builds the wheel, and installs what it requires.
"""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from softroce_lab.learn import labs
from tests import test_wheel
from tests.learn import submissions
from tests.learn.submissions import NUMBERS

RUN_S = 1200  # of one command; a machine with other work needs minutes to grade lab 3
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"


def wheel_of(tree, folder):
    """A wheel of a laid-out tree (PyPA's binary distribution format)."""
    name = f"softroce_lab-0.0.0-{TAG}-{TAG}-linux_x86_64.whl"
    about = "softroce_lab-0.0.0.dist-info"
    files = {
        path.relative_to(tree).as_posix(): path.read_bytes()
        for path in sorted((tree / "softroce_lab").rglob("*"))
        if path.is_file()
    }
    files |= {
        f"{about}/METADATA": b"Metadata-Version: 2.1\nName: softroce_lab\nVersion: 0.0.0\n",
        f"{about}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-linux_"
        "x86_64\n".encode(),
        f"{about}/entry_points.txt": b"[console_scripts]\nlab = softroce_lab.cli.__main__:main\n",
    }  # fmt: skip
    record = "".join(f"{path},{_digest(data)},{len(data)}\n" for path, data in files.items())
    with zipfile.ZipFile(folder / name, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
        archive.writestr(f"{about}/RECORD", record + f"{about}/RECORD,,\n")
    return folder / name


def _digest(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"


class Machine:
    """A home and a virtual environment of a user without rights."""

    def __init__(self, top, user):
        self.home = top / "home"
        self.home.mkdir()
        self.user = user if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(self.home, user)

    def run(self, *command, cwd=None):
        return subprocess.run(
            [str(each) for each in command], cwd=cwd or self.home, user=self.user,
            group=self.user, extra_groups=[] if self.user is not None else None,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), "SOFTROCE_LAB_SECRET": "hidden"},
            capture_output=True, text=True, timeout=RUN_S,
        )  # fmt: skip

    def install(self, wheel, *, borrowed):
        """`borrowed`: what the package requires is another environment's."""
        python = Path(sys.executable).resolve()
        assert self.run(python, "-m", "venv", "venv").returncode == 0
        pip = [self.home / "venv/bin/python", "-m", "pip", "--disable-pip-version-check", "install"]
        done = self.run(*pip, "-q", *(["--no-deps", "--no-index"] if borrowed else []), wheel)
        assert done.returncode == 0, done.stderr
        if borrowed:
            (packages,) = self.home.glob("venv/lib/python*/site-packages")
            others = sysconfig.get_paths()["platlib"]
            # None of its own .pth files, and not the link to the system's bcc.
            text = f"{others}\nimport sys; sys.modules['bcc'] = None\n"
            (packages / "borrowed.pth").write_text(text)

    def lab(self, *words, cwd=None):
        return self.run(self.home / "venv/bin/lab", *words, cwd=cwd)


@pytest.mark.full("learn-wheel")
def test_every_lab_works_from_a_wheel(full, nobody):
    """Every lab from a wheel in a fresh virtual environment, without root; in full, all tasks."""
    with test_wheel.open_folder() as top:
        machine = Machine(top, nobody)
        tree = (test_wheel.built if full else test_wheel.laid_out)(top)
        wheel = next(top.glob("*.whl")) if full else wheel_of(tree, top)
        machine.install(wheel, borrowed=not full)
        found = machine.run(
            machine.home / "venv/bin/python", "-c",
            "import os, softroce_lab; print(os.getuid(), softroce_lab.__file__); import bcc",
        )  # fmt: skip
        assert found.stdout.split()[0] == str(nobody if machine.user else os.getuid())
        assert "/home/venv/" in found.stdout
        assert "ModuleNotFoundError" in found.stderr
        home = machine.home
        submissions.use_labs(
            lambda name, *words: machine.run(home / "venv/bin" / name, *words),
            lambda path, text: (home / path).write_text(text),
        )
        for number in NUMBERS if full else NUMBERS[-2:]:
            lab = labs.find(number)
            submissions.answer(home / f"lab{number}", lab)
            grade(machine, f"lab{number}", lab)


def grade(machine, name, lab):
    graded = machine.lab("learn", "grade", name, "--gradescope", "-q")
    if graded.returncode == 3:  # no user namespaces for users without rights here
        assert "the policy cannot be isolated" in graded.stderr
        return
    assert graded.returncode == 0, graded.stderr
    assert json.loads(graded.stdout)["score"] == lab.points
