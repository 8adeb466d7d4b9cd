# SPDX-License-Identifier: GPL-2.0-or-later
"""The devcontainer: its definition, and in full its Dockerfile, built and used.

It is built by images.py, as a codespace would.
"""

import json
import re
import shlex
import subprocess

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests import images, test_wheel
from tests.learn import submissions

FOLDER = PROJECT_ROOT / ".devcontainer"
RUN_S = 600


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
    file = FOLDER / definition()["build"]["dockerfile"]
    assert images.bases(file) == {images.BASE.rpartition("/")[2]}


class Built(images.Image):
    """The image of the Dockerfile, and a container of it."""

    def __init__(self, top):
        (top / "source").mkdir()
        context = test_wheel.source_of(top / "source")
        super().__init__(top, FOLDER / definition()["build"]["dockerfile"], context)

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
