# SPDX-License-Identifier: GPL-2.0-or-later
"""A run directory's documents: what is not as it should be is said, with its place."""

import json

import pytest

from softroce_lab.check.evidence import Run
from softroce_lab.errors import UserError


def run_of(folder, manifest=None, links=None):
    for name, document in (("manifest.json", manifest), ("links.json", links)):
        if document is not None:
            text = document if isinstance(document, str) else json.dumps(document)
            (folder / name).write_text(text)
    return Run(folder)


def test_what_is_not_there_is_empty(tmp_path):
    run = run_of(tmp_path)
    assert run.manifest == {}
    assert run.links == {}


def test_what_is_not_known_is_kept(tmp_path):
    manifest = {"state": "done", "runs": [{"transport": "csa_ud", "retransmitted": 3}]}
    assert run_of(tmp_path, manifest).manifest == manifest


@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        ([1], "the document: input should be"),
        ({"runs": {}}, "runs: input should be a valid list"),
        ({"runs": [{"counters": {"h2": {"rx_data": "1"}}}]}, "runs.0.counters.h2.rx_data"),
        (
            {"runs": [{"processes": {"h1": {"timer_lateness_log2_ns": [0] * 65}}}]},
            "h1.timer_lateness",
        ),
        ({"runs": [{"emulator_drops": 1 << 63}]}, "runs.0.emulator_drops"),
        ({"faults": ["loss"]}, "faults.0"),
        ("[" * 100_000, "is nested too deep"),
        ("{", "cannot be read"),
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path, manifest, what):
    with pytest.raises(UserError, match=what) as caught:
        _ = run_of(tmp_path, manifest).manifest
    assert caught.value.file == str(tmp_path / "manifest.json")


@pytest.mark.parametrize(
    ("links", "what"),
    [
        ({"runs": {"csa_ud": [{"received": 1}]}}, "runs.csa_ud.0.name: field required"),
        ({"runs": {"csa_ud": [None]}}, "runs.csa_ud.0"),
        ({"runs": [1]}, "runs"),
    ],
)
def test_links_of_another_shape_are_refused(tmp_path, links, what):
    with pytest.raises(UserError, match=what):
        _ = run_of(tmp_path, links=links).links
