# SPDX-License-Identifier: GPL-2.0-or-later
"""The devcontainer: its definition, and in full its Dockerfile, built and used.

No base image is pulled: mmdebstrap makes `debian:bookworm` of Debian's packages, and buildah builds
the Dockerfile on it, as a codespace would.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from softroce_lab.learn import labs
from softroce_lab.paths import PROJECT_ROOT
from tests import test_wheel
from tests.learn import submissions

FOLDER = PROJECT_ROOT / ".devcontainer"
TOOLS = ("buildah", "mmdebstrap", "umoci")
BASE = "docker.io/library/debian:bookworm"
BUILD_S, RUN_S = 7200, 600
CERTIFICATES = "/etc/ssl/certs"  # of this machine: its registries may have their own


def definition():
    return json.loads((FOLDER / "devcontainer.json").read_text())


def dockerfile():
    return (FOLDER / definition()["build"]["dockerfile"]).read_text()


def test_its_definition_names_what_is_there():
    found = definition()
    assert set(found) <= {"name", "build", "remoteUser", "postCreateCommand"}
    assert (FOLDER / found["build"]["context"]).resolve() == PROJECT_ROOT
    assert re.search(rf"^USER {found['remoteUser']}$", dockerfile(), re.M)
    assert shlex.split(found["postCreateCommand"])[0] == "lab"


def test_its_base_is_the_one_that_the_long_form_makes():
    bases = re.findall(r"^FROM (\S+)", dockerfile(), re.M)
    assert set(bases) == {BASE.rpartition("/")[2]}


class Built:
    """The image of the Dockerfile, in a storage of its own, and a container of it."""

    def __init__(self, top):
        self.top = top
        places = ["--root", top / "store", "--runroot", top / "run"]
        self.storage = [*places, "--storage-driver", "vfs"]
        self._base()
        known = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
        more = [word for key, value in known.items() for word in ("--env", f"{key}={value}")]
        shared = [CERTIFICATES, *filter(os.path.isdir, known.get("PIP_FIND_LINKS", "").split())]
        for path in shared:
            more += ["--volume", f"{path}:{path}:ro"]
        (top / "source").mkdir()
        context = test_wheel.source_of(top / "source")
        file = FOLDER / definition()["build"]["dockerfile"]
        self.buildah(
            "bud", "--pull-never", "--isolation", "chroot", "--network", "host", *more,
            "--file", file, "--tag", "lab-devcontainer", context,
        )  # fmt: skip
        self.container = self.buildah("from", "--pull-never", "lab-devcontainer").stdout.strip()

    def _base(self):
        root, layout = self.top / "root", self.top / "layout"
        commands = [
            # Certificates are this machine's, read-only: their package has to be there before.
            ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root",
             "--include=ca-certificates", "bookworm", root],
            ["umoci", "init", "--layout", layout],
            ["umoci", "new", "--image", f"{layout}:base"],
            ["umoci", "insert", "--image", f"{layout}:base", root, "/"],
        ]  # fmt: skip
        for command in commands:
            subprocess.run(command, check=True, timeout=BUILD_S, capture_output=True)
        pulled = self.buildah("pull", "--quiet", f"oci:{layout}:base").stdout.split()[-1]
        self.buildah("tag", pulled, BASE)

    def buildah(self, *words):
        command = ["buildah", *self.storage, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done

    def run(self, *words):
        """In the container, as its user, in its home."""
        home = f"/home/{definition()['remoteUser']}"
        options = ["--isolation", "chroot", "--workingdir", home, self.container, "--"]
        command = ["buildah", *self.storage, "run", *options]
        return subprocess.run([*command, *words], capture_output=True, text=True, timeout=RUN_S)

    def write(self, path, text):
        mounted = Path(self.buildah("mount", self.container).stdout.strip())
        (mounted / path).write_text(text)


@pytest.mark.full("learn-devcontainer")
def test_labs_in_the_devcontainer(full, tmp_path):
    """The devcontainer's Dockerfile is built by buildah, without pulling, and labs work in it."""
    if not full:
        pytest.skip("takes minutes: lab test --full learn-devcontainer")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}")
    use(Built(tmp_path))


def use(built):
    user = definition()["remoteUser"]
    assert built.run("id", "-un").stdout == f"{user}\n"
    listed = built.run(*shlex.split(definition()["postCreateCommand"]))
    assert listed.returncode == 0, listed.stderr
    for number, lab in labs.SERIES.items():
        assert lab.title in listed.stdout
        started = built.run("lab", "learn", "start", str(number), f"lab{number}")
        assert started.returncode == 0, started.stderr
        built.write(f"home/{user}/lab{number}/policy.py", submissions.solution(number))
        task = min(lab.tasks, key=lambda each: each.points)
        words = ["learn", "check", f"lab{number}", "--task", task.id, "--seed", "1"]
        checked = built.run("lab", *words)
        assert checked.returncode == 0, checked.stdout + checked.stderr
