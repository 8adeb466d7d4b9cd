# SPDX-License-Identifier: GPL-2.0-or-later
"""Experiments as texts."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.inputs import yaml_source

PLAIN = """\
name: plain
topology: {generator: {kind: star, hosts: 6, access: {rate: 100Gbit, delay: 1us}}}
transports: [rc]
"""


def of(text):
    """The experiment in a text."""
    return spec.of(yaml_source.parse(text))


def with_workload(workload):
    """An experiment with this workload, which begins in line 4."""
    return of(PLAIN + f"workload: {workload}\n")


def assert_refused(workload, at, what):
    """An error at the last place of these characters in the workload, with line and column."""
    with pytest.raises(UserError, match=what) as refused:
        with_workload(workload)
    column = len("workload: ") + workload.rindex(at) + 1
    assert (refused.value.line, refused.value.column) == (4, column)
