# SPDX-License-Identifier: GPL-2.0-or-later
"""Images of this project's Dockerfiles, without a registry of images.

mmdebstrap makes `debian:bookworm` of Debian's packages, and buildah builds the Dockerfile on it.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from softroce_lab.paths import PROJECT_ROOT

TOOLS = ("buildah", "mmdebstrap", "umoci")
BASE = "docker.io/library/debian:bookworm"
BUILD_S = 7200
CERTIFICATES = "/etc/ssl/certs"  # of this machine: its registries may have their own
_REACH = ("PIP_", "SSL_", "http_proxy", "https_proxy", "no_proxy")  # how it reaches them


def needed(*more):
    """Skips the test where root's rights or a tool is missing."""
    missing = [tool for tool in (*TOOLS, *more) if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(missing or TOOLS)}")


def bases(dockerfile):
    """The images that it is built on."""
    return set(re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE))


class Image:
    """A Dockerfile's, in a storage of its own in the folder `top`, and a container of it."""

    def __init__(self, top, dockerfile, context):
        self.top = top
        places = ["--root", top / "store", "--runroot", top / "run"]
        self.storage = [*places, "--storage-driver", "vfs"]
        self._base()
        known = {key: value for key, value in os.environ.items() if key.startswith(_REACH)}
        more = [word for key, value in known.items() for word in ("--env", f"{key}={value}")]
        wheels = known.get("PIP_FIND_LINKS", "").split()
        for path in [CERTIFICATES, *filter(os.path.isdir, wheels)]:
            more += ["--volume", f"{path}:{path}:ro"]
        self.buildah(
            "bud", "--pull-never", "--isolation", "chroot", "--network", "host", *more,
            "--file", dockerfile, "--tag", "made", context,
        )  # fmt: skip
        self.container = self.buildah("from", "--pull-never", "made").stdout.strip()

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

    def mounted(self):
        """The root directory of the container."""
        return Path(self.buildah("mount", self.container).stdout.strip())


def checkout(folder):
    """A copy of this one in `folder`, without what was made in it."""
    made = (".git", ".venv", ".lab-prepared", "build", "runs", "sweeps", ".vagrant", "dist",
            "*.so", "bin", "__pycache__", ".hypothesis", ".*_cache")  # fmt: skip
    ignore = shutil.ignore_patterns(*made)
    return shutil.copytree(PROJECT_ROOT, folder, symlinks=True, ignore=ignore)
