# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the native targets: by any compiler with sanitizers, or by clang with libFuzzer."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from softroce_lab.paths import PROJECT_ROOT
from tests import native_build

BLIND = native_build.BUILD
GUIDED = PROJECT_ROOT / "build" / "fuzz-clang"
_CLANG = {"CMAKE_CXX_COMPILER": "clang++", "SOFTROCE_LIBFUZZER": "ON"}
_NOTHING = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) {return 0;}'


def build(name: str, folder: Path = BLIND) -> Path:
    """The program of a target, or of another harness; builds what has changed."""
    options = _CLANG if folder == GUIDED else {}
    chosen = [f"-D{key}={value}" for key, value in options.items()]
    native_build.fuzz(name, folder=folder, options=chosen)
    return folder / name


def program_of(target: str) -> str:
    """What CMake calls a target of fuzzing."""
    return "fuzz_" + target.replace("-", "_")


def libfuzzer_lacks() -> str:
    """What is missing for libFuzzer, with the packages to install; empty if nothing is."""
    if shutil.which("clang++") is None:
        return "clang is missing: apt-get install clang libclang-rt-14-dev"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "nothing.cpp"
        source.write_text(_NOTHING)
        command = ["clang++", "-fsanitize=fuzzer,address,undefined", source, "-o", f"{source}.out"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode == 0:
        return ""
    asked = ["clang++", "-dumpversion"]
    version = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    package = f"libclang-rt-{version.partition('.')[0]}-dev"
    return f"libFuzzer and clang's sanitizers are missing: apt-get install {package}"
