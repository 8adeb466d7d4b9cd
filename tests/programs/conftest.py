# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts, on which unmodified programs run over the library of native/verbs."""

import contextlib
import functools
import os
import secrets
import subprocess
import sys

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from tests.labs import (  # noqa: F401
    _eventually,
    _killed_at,
    _run_lab,
    foreigner,
    lab_name,
    needs_root,
    prepare_verbs,
    traces,
    two_hosts,
)
from tests.programs.pair import Pair

INSTALL_S = 300


def _pair(topology_name):
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with contextlib.ExitStack() as stack:
        plan = topology.load(topology_name, name=f"t{secrets.token_hex(3)}")
        lab = fabric.up(plan, ephemeral=True)
        stack.callback(lab.down)
        prepare_verbs()
        yield Pair(lab)


@pytest.fixture(scope="session")
def pair():
    yield from _pair("two-hosts")


@pytest.fixture(scope="module")
def rails():
    """Two hosts with two ports each."""
    yield from _pair("dual-rail")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Installs wheels of PyPI: the folder of their programs."""
    root = tmp_path_factory.mktemp("wheels")

    @functools.cache
    def install(*names):
        folder = root / names[0]
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=INSTALL_S)
        pip = [folder / "bin/python", "-m", "pip", "-q", "install", *names]
        done = subprocess.run(pip, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            pytest.skip(f"pip cannot install {' '.join(names)}: {done.stderr[-300:]}")
        return folder / "bin"

    return install


@pytest.fixture(autouse=True)
def clean_links(request):
    """What a test set on the links is gone afterwards."""
    yield
    for hosts in {"pair", "rails"} & set(request.fixturenames):
        request.getfixturevalue(hosts).clear()
