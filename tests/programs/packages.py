# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's packages of programs that only some tests run: installed by the first one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_INSTALL = ["apt-get", "-q", "-y", "--no-install-recommends", "install"]
_INSTALL_S = 300

MPI = {  # by launcher: the compiler, and the package of both
    "mpirun.openmpi": ("mpicc.openmpi", "libopenmpi-dev", "openmpi-bin"),
    "mpiexec.mpich": ("mpicc.mpich", "libmpich-dev", "mpich"),
}


def need(file, *packages):
    """Install `packages` if `file`, a program or a path, is missing; skip the test without it."""
    if _has(file):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (
            [*_INSTALL, *packages],
            ["apt-get", "-q", "update"],
            [*_INSTALL, *packages],
        ):
            subprocess.run(command, env=environment, capture_output=True, timeout=_INSTALL_S,
                           check=False)  # fmt: skip
            if _has(file):
                return
    pytest.skip(f"{file} is missing: apt-get install {' '.join(packages)}")


def built_for_mpi(launcher, source, folder):
    """Compile a program for the MPI of a launcher, into `folder`: its path."""
    compiler, *names = MPI[launcher]
    need(compiler, *names)
    program = folder / source.stem
    subprocess.run([compiler, "-O2", "-o", program, source], check=True, capture_output=True)
    return program


def _has(file):
    return Path(file).exists() or shutil.which(file) is not None
