# SPDX-License-Identifier: GPL-2.0-or-later
"""A wheel without any XDP part: what CMake decides, and what an installed one can do.

In full a wheel is built with neither libxdp, libbpf nor ISA-L; in short its files are laid out as
it would, with the native module that is there. Either is then used by a user without rights.
"""

import contextlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nanobind
import pytest

ROOT = Path(__file__).resolve().parents[1]
CAPTURE = ROOT / "tests/captures/rxe_rc.pcap"
BUILD_S = 1800
RUN_S = 120
NATIVE_PROGRAMS = {"softroce-monitor", "softroce-wire", "softroce-veth"}

needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")


def configure(folder, *settings, **environment):
    """What CMake says."""
    return subprocess.run(
        [
            "cmake", "-G", "Ninja", "-S", ROOT, "-B", folder,
            f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind.cmake_dir()}",
            *settings,
        ],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )  # fmt: skip


@needs_cmake
def test_cmake_is_told_to_do_without(tmp_path):
    result = configure(tmp_path, "-DSOFTROCE_LIVE=OFF", "-DSOFTROCE_ISAL=OFF")
    assert result.returncode == 0, result.stderr
    assert "softroce: the real clock: no (SOFTROCE_LIVE is OFF)" in result.stdout
    assert "softroce: CRC-32 of ISA-L: no" in result.stdout
    targets = {path.stem for path in (tmp_path / "native").rglob("*.dir")}
    assert "_native" in targets
    assert not targets & {"softroce_live", *NATIVE_PROGRAMS}


# pkg-config is told of no folder: to it, nothing is installed.
NOTHING = {"PKG_CONFIG_LIBDIR": "/nonexistent", "PKG_CONFIG_PATH": ""}


@needs_cmake
def test_cmake_does_without_what_is_not_there(tmp_path):
    result = configure(tmp_path, **NOTHING)
    assert result.returncode == 0, result.stderr
    assert re.search(r"the real clock: no \(it needs libxdp-dev, libbpf-dev", result.stdout)


@needs_cmake
def test_cmake_fails_where_it_has_to_have_what_is_not_there(tmp_path):
    result = configure(tmp_path, "-DSOFTROCE_LIVE=ON", **NOTHING)
    assert result.returncode != 0
    assert "SOFTROCE_LIVE is ON, but: it needs libxdp-dev" in result.stderr


@contextlib.contextmanager
def open_folder():
    """A folder that everybody may read."""
    with tempfile.TemporaryDirectory(prefix="softroce-lab-wheel-") as path:
        Path(path).chmod(0o755)
        yield Path(path)


def source_of(folder):
    """A copy of the checkout without what was made in it."""
    made = (".git", ".venv", ".lab-prepared", "build", "runs", "*.so", "bin", "__pycache__")
    ignore = shutil.ignore_patterns(*made)
    parts = ("softroce_lab", "native", "xdp", "netns_topologies", "faults", "workloads")
    for name in parts:
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def built(folder):
    """What a wheel without the parts that can be done without holds, unpacked."""
    (folder / "source").mkdir()
    settings = (f"--config-settings=cmake.define.SOFTROCE_{part}=OFF" for part in ("LIVE", "ISAL"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-index", "--no-build-isolation", *settings]
    build = [*pip, "wheel", source_of(folder / "source"), "-w", folder, *options]
    subprocess.run(build, check=True, timeout=BUILD_S, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def laid_out(folder):
    """The same with this checkout's native module, and nothing built."""
    source = source_of(folder / "installed")
    native = Path(importlib.util.find_spec("softroce_lab._native").origin)
    shutil.copy(native, source / "softroce_lab")
    (source / "softroce_lab/data").mkdir()
    for name in ("xdp", "netns_topologies", "faults", "workloads"):
        shutil.move(source / name, source / "softroce_lab/data" / name)
    (source / "CMakeLists.txt").unlink()
    return source


@pytest.mark.full("wheel")
def test_a_wheel_without_xdp_serves_the_virtual_clock(full, nobody):
    """A wheel built without libxdp, libbpf and ISA-L, used without root; in short, its layout."""
    with open_folder() as top:
        judge((built if full else laid_out)(top), top / "home", nobody)


# An editable installation of the checkout finds its own modules before any folder of PYTHONPATH's.
INSTALLED = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]
"""


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def judge(installed, home, user):
    names = {path.name for path in installed.rglob("*")}
    assert not names & NATIVE_PROGRAMS
    for folder in ("workloads", "netns_topologies", "faults"):
        assert files_in(installed / "softroce_lab/data" / folder) == files_in(ROOT / folder)
    home.mkdir()
    if os.geteuid() == 0:
        shutil.chown(home, user)

    def python(program, *arguments):
        return subprocess.run(
            [sys.executable, "-c", INSTALLED + program, *arguments],
            cwd=home,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(installed), "HOME": str(home)},
            user=user if os.geteuid() == 0 else None,
            capture_output=True,
            text=True,
            timeout=RUN_S,
        )

    def lab(*arguments):
        return python("from softroce_lab.cli.app import main; main()", *arguments)

    found = python("import softroce_lab; print(softroce_lab.__file__)")
    assert Path(found.stdout.strip()).is_relative_to(installed), found.stderr
    run = lab("run", "point-to-point", "--clock", "virtual", "--set", "payload=verify", "--json")
    assert run.returncode == 0, run.stderr
    document = json.loads(run.stdout)
    assert {"csa_ud", "rc"} <= {row["transport"] for row in document["runs"]}
    assert all(row["verified"] for row in document["runs"])
    demo = lab("demo", "--file", str(CAPTURE), "--json")
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout)["clock"] == "virtual"
    up = lab("up", "leaf-spine")
    assert (up.returncode, up.stdout) == (3, "")
    assert "built for the virtual clock alone" in up.stderr
    check = lab("verify", str(CAPTURE), "--json")  # it computes every ICRC
    assert check.returncode == 0, check.stderr
    start = lab("learn", "start", "1", "lab1", "--student", "ada")
    assert start.returncode == 0, start.stderr
    learned = lab("learn", "check", "lab1")
    assert learned.returncode == 1, learned.stderr
    assert "policy.py is as it was handed out" in learned.stdout
