# SPDX-License-Identifier: GPL-2.0-or-later
"""Accessibility of three pages of the site: one written, one with code, one generated."""

import subprocess
import sys

import pytest

from tests.docs.pages import SITE
from tests.results.page.test_axe import axe, judged  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    built = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", SITE, built]
    done = subprocess.run(sphinx, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("page", ["index", "tutorial/quickstart", "reference/verbs"])
def test_a_page(page, site, axe):  # noqa: F811
    file = site / f"{page}.html"
    found = judged(file.read_text(), axe, file.parent)
    assert found["violations"] == []
    assert found["passes"] > 20
