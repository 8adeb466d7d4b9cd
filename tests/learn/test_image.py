# SPDX-License-Identifier: GPL-2.0-or-later
"""The OCI image for labs, and the devcontainer. In full both are built, and labs work in them.

The devcontainer is built by images.py, as a codespace would.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests import images, test_wheel
from tests.learn import submissions

CONTAINERS = PROJECT_ROOT / "containers"
DEVCONTAINER = PROJECT_ROOT / ".devcontainer"
TOOLS = ("mmdebstrap", "umoci", "bwrap")
BUILD_S, RUN_S = 3600, 600
WHEEL = "SOFTROCE_LAB_WHEEL"
"""A wheel for Debian 12's Python that is built already; otherwise the test builds one."""


def packages():
    lines = (CONTAINERS / "packages.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def definition():
    return json.loads((DEVCONTAINER / "devcontainer.json").read_text())


def dockerfile():
    return DEVCONTAINER / definition()["build"]["dockerfile"]


def test_the_devcontainer_names_what_is_there_and_has_what_the_image_has():
    found = definition()
    assert set(found) <= {"name", "build", "remoteUser", "postCreateCommand"}
    assert (DEVCONTAINER / found["build"]["context"]).resolve() == PROJECT_ROOT
    assert shlex.split(found["postCreateCommand"])[0] == "lab"
    assert images.bases(dockerfile()) == {images.BASE.rpartition("/")[2]}
    last = dockerfile().read_text().rpartition("FROM debian:bookworm\n")[2]
    for name in packages():
        assert re.search(rf"(?<![\w-]){name}(?![\w-])", last), name
    assert re.search(rf"^USER {found['remoteUser']}$", last, re.M)
    settings = "".join(path.read_text() for path in PROJECT_ROOT.glob("native/**/CMakeLists.txt"))
    settings += "".join(path.read_text() for path in PROJECT_ROOT.glob("native/**/*.cmake"))
    for option in re.findall(r"cmake\.define\.(\w+)=", dockerfile().read_text()):
        assert option in settings


def build(*words, **options):
    return subprocess.run(
        [CONTAINERS / "build", *words], capture_output=True, text=True, timeout=BUILD_S, **options
    )


def test_what_cannot_be_built_says_why(tmp_path):
    assert "usage: containers/build WHEEL DIR" in build().stderr
    assert "no such wheel" in build(tmp_path / "nothing.whl", tmp_path).stderr
    (tmp_path / "a.whl").touch()
    if os.geteuid() == 0 and not shutil.which("umoci"):
        assert "umoci" in build(tmp_path / "a.whl", tmp_path / "out").stderr
    assert not (tmp_path / "out").exists()


class Image:
    """An unpacked image. `run` has a command run in it by bubblewrap, as the image's user."""

    def __init__(self, layout, folder):
        bundle = folder / "bundle"
        command = ["umoci", "unpack", "--image", layout, bundle]
        subprocess.run(command, check=True, timeout=BUILD_S, capture_output=True)
        self.root = bundle / "rootfs"
        # bubblewrap maps one user, who starts it: to it the image's user has to be that one.
        for path in (self.root / "home/student", *(self.root / "home/student").rglob("*")):
            os.chown(path, os.geteuid(), os.getegid())
        self.process = json.loads((bundle / "config.json").read_text())["process"]

    def run(self, *words):
        user = self.process["user"]
        names = [each.partition("=") for each in self.process["env"]]
        command = [
            "bwrap", "--bind", self.root, "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all",
            "--uid", str(user["uid"]), "--gid", str(user["gid"]), "--die-with-parent",
            "--chdir", self.process["cwd"], "--clearenv",
        ]  # fmt: skip
        for name, _, value in names:
            command += ["--setenv", name, value]
        return subprocess.run(
            [*command, *words], capture_output=True, text=True, timeout=RUN_S, cwd="/"
        )

    def write(self, path, text):
        (self.root / path).write_text(text)


@pytest.mark.full("learn-image")
def test_labs_in_the_image(full, tmp_path):
    """The OCI image is built of Debian packages, and every lab works in it, run by bubblewrap."""
    if not full:
        pytest.skip("takes minutes: lab test --full learn-image")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}")
    wheel = os.environ.get(WHEEL)
    if wheel is None:
        test_wheel.built(tmp_path)
        (wheel,) = tmp_path.glob("*.whl")
    made = os.environ.get("SOFTROCE_LAB_IMAGE")
    if made is None:
        done = build(wheel, tmp_path / "out", env={**os.environ, "PYTHON": sys.executable})
        assert done.returncode == 0, done.stderr
        made = done.stdout.split()[-1]
    image = Image(made, tmp_path)
    assert image.run("id", "-un").stdout == "student\n"
    submissions.use_labs(image.run, lambda path, text: image.write(f"home/student/{path}", text))


# --- The devcontainer ------------------------------------------------------------------------


class Built(images.Image):
    """The image of the Dockerfile, and a container of it."""

    def __init__(self, top):
        (top / "source").mkdir()
        context = test_wheel.source_of(top / "source")
        super().__init__(top, dockerfile(), context)

    def run(self, *words):
        """In the container, as its user, in its home."""
        home = f"/home/{definition()['remoteUser']}"
        options = ["--isolation", "chroot", "--workingdir", home, self.container, "--"]
        return subprocess.run(
            ["buildah", *self.storage, "run", *options, *words],
            capture_output=True, text=True, timeout=RUN_S,
        )  # fmt: skip

    def write(self, path, text):
        (self.mounted() / path).write_text(text)


@pytest.mark.full("learn-devcontainer")
def test_labs_in_the_devcontainer(full, tmp_path):
    """The devcontainer's Dockerfile is built by buildah, without pulling, and labs work in it."""
    if not full:
        pytest.skip("takes minutes: lab test --full learn-devcontainer")
    images.needed()
    built = Built(tmp_path)
    user = definition()["remoteUser"]
    assert built.run("id", "-un").stdout == f"{user}\n"
    submissions.use_labs(built.run, lambda path, text: built.write(f"home/{user}/{path}", text))
