# SPDX-License-Identifier: GPL-2.0-or-later
"""The container recipe of docs/howto/rdma-in-ci.md: its Dockerfile and its commands.

Made by images.py, and run by runc with what `docker run --privileged` gives: all capabilities, a
`/sys` to write to, no filter of system calls, namespaces of its own. Nothing is at its network.
"""

import json
import re
import shlex
import subprocess
import time

import pytest

from softroce_lab.paths import PROJECT_ROOT
from tests import images

PAGE = PROJECT_ROOT / "docs/howto/rdma-in-ci.md"
FOLDER = PROJECT_ROOT / "containers"
DOCKERFILE = FOLDER / "programs.Dockerfile"
MOST_S = 120
LONGEST_S = 600


def recipe():
    """The commands of the page: to build the image, and to run a container of it."""
    [text] = re.findall(r"^    (docker build .*?)^$", PAGE.read_text(), re.M | re.DOTALL)
    build, run = re.split(r"^ *(?=docker run)", text, flags=re.MULTILINE)
    return shlex.split(build, comments=True), shlex.split(run)


def test_the_recipe_names_what_is_there():
    build, run = recipe()
    file = build[build.index("-f") + 1]
    assert (build[-1], PROJECT_ROOT / file) == (".", DOCKERFILE)
    assert images.bases(DOCKERFILE) == {images.BASE.rpartition("/")[2]}
    tag = build[build.index("-t") + 1]
    assert run[run.index(tag) - 1] == "--privileged"
    ignored = (PROJECT_ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venv", ".lab-prepared", "build"} <= set(ignored)


@pytest.mark.full("verbs-container")
def test_perftest_over_a_lossy_fabric_in_a_container(full, tmp_path):
    """The image is built, and runs perftest over a lossy fabric in two minutes."""
    if not full:
        pytest.skip("takes minutes: lab test --full verbs-container")
    images.needed("runc", "capsh")
    image = images.Image(tmp_path, DOCKERFILE, images.checkout(tmp_path / "checkout"))
    _, run = recipe()
    began_s = time.monotonic()
    done = contained(image, tmp_path, run[run.index("--privileged") + 2 :])
    took_s = time.monotonic() - began_s
    assert done.returncode == 0, done.stdout + done.stderr
    results = re.findall(r"^ 65536 +1000 +[\d.]+ +[\d.]+", done.stdout, re.MULTILINE)
    assert results, done.stdout
    assert took_s < MOST_S
    print(f"{took_s:.0f} s")


def contained(image, folder, command):
    """Run a command in a privileged container of the image, in the directory of its Dockerfile."""
    bundle = folder / "bundle"
    bundle.mkdir()
    subprocess.run(["runc", "spec"], cwd=bundle, check=True, timeout=LONGEST_S)
    file = bundle / "config.json"
    config = privileged(json.loads(file.read_text()), image.mounted(), command)
    file.write_text(json.dumps(config))
    name = f"softroce-{folder.name}-{time.time_ns()}"
    places = ["--root", folder / "runc"]
    try:
        return subprocess.run(
            ["runc", *places, "run", "--bundle", bundle, name],
            capture_output=True, text=True, timeout=LONGEST_S,
        )  # fmt: skip
    finally:
        subprocess.run(
            ["runc", *places, "delete", "--force", name], capture_output=True, timeout=LONGEST_S
        )


def privileged(config, root, command):
    """That of `runc spec`, with the rights of `docker run --privileged`."""
    every = [f"CAP_{name}" for name in capabilities()]
    config["process"] |= {
        "terminal": False,
        "args": command,
        "cwd": re.search(r"^WORKDIR (\S+)", DOCKERFILE.read_text(), re.MULTILINE)[1],
        "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), every),
        "noNewPrivileges": False,
        "rlimits": [],
    }
    config["root"] = {"path": str(root), "readonly": False}
    linux = config["linux"]
    linux["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}
    linux["maskedPaths"] = linux["readonlyPaths"] = []
    mounts = [each for each in config["mounts"] if each["type"] != "cgroup"]
    for each in mounts:
        each["options"] = [word for word in each.get("options", []) if word != "ro"]
    config["mounts"] = mounts
    return config


def capabilities():
    """Names of all that this process has."""
    shown = subprocess.run(
        ["capsh", "--decode=" + effective()], capture_output=True, text=True, check=True, timeout=30
    ).stdout
    return [
        name.removeprefix("cap_").upper() for name in shown.strip().partition("=")[2].split(",")
    ]


def effective():
    with open("/proc/self/status", encoding="ascii") as status:
        [line] = [line for line in status if line.startswith("CapEff:")]
    return line.split()[1]
