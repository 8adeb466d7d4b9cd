# SPDX-License-Identifier: GPL-2.0-or-later
"""Two hosts, on which unmodified programs run over the library of native/verbs."""

import contextlib
import os
import secrets
import subprocess

import pytest

from softroce_lab import topology
from softroce_lab.fabric import lab as fabric
from softroce_lab.paths import PROJECT_ROOT
from tests.labs import needs_root  # noqa: F401
from tests.verbs_programs.pair import Pair

PREPARE_S = 1800


@pytest.fixture(scope="session")
def pair():
    """The launcher installs and builds what is missing, as it does for users."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with contextlib.ExitStack() as stack:
        plan = topology.load("two-hosts", name=f"t{secrets.token_hex(3)}")
        lab = fabric.up(plan, ephemeral=True)
        stack.callback(lab.down)
        prepared = subprocess.run(
            [PROJECT_ROOT / "lab", "exec", "--verbs", "--lab", plan.name, "h1", "--", "true"],
            capture_output=True, text=True, timeout=PREPARE_S,
        )  # fmt: skip
        assert prepared.returncode == 0, prepared.stderr
        yield Pair(lab)


@pytest.fixture(autouse=True)
def clean_links(request):
    """What a test set on the links is gone afterwards."""
    yield
    if "pair" in request.fixturenames:
        request.getfixturevalue("pair").clear()
