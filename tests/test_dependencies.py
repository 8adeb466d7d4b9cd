# SPDX-License-Identifier: GPL-2.0-or-later
"""What the lab requires of Python packages: every requirement has a lower bound that holds here."""

import importlib.metadata
import tomllib

import pytest
from packaging.requirements import Requirement

from softroce_lab.paths import PROJECT_ROOT

OF_DEBIAN = {"numpy": "1.24.2", "scapy": "2.5.0"}
"""Releases of Debian 12 with which the lab does not work."""


def requirements():
    project = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lists = [project["dependencies"], *(extras[name] for name in extras if name != "lint")]
    return [Requirement(text) for each in lists for text in each]


@pytest.mark.parametrize("requirement", requirements(), ids=lambda each: each.name)
def test_each_has_a_lower_bound(requirement):
    """Else pip takes any release that is there already, however old."""
    assert any(each.operator == ">=" for each in requirement.specifier)
    if requirement.name in OF_DEBIAN:
        assert not requirement.specifier.contains(OF_DEBIAN[requirement.name])
    if requirement.marker is None or requirement.marker.evaluate():
        try:
            found = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            return  # of an extra that is not installed
        assert requirement.specifier.contains(found)
