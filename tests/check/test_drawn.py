# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults that `lab fuzz` draws, captured and checked: no rule is violated."""

from pathlib import Path

import pytest

from softroce_lab.check import suites
from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.capturing import Wanted
from softroce_lab.experiment.fuzz import draw as fuzz_draw
from softroce_lab.experiment.fuzz import seeds as fuzz
from softroce_lab.experiment.reporter import Silent
from softroce_lab.experiment.transports.transport import Transport
from softroce_lab.inputs import yaml_source
from softroce_lab.transports import registry
from tests.check.plant import check, failed

FULL_SEEDS = 2000
SHORT_SEEDS = 14
# Packets wait in the RNIC for contexts; an answer's bits were flipped before the last link, and no
# ICRC tells.
ONCE_MISTAKEN = {418: "ud_rto", 1237: "srnic"}
CASES = Path(__file__).parent / "drawn"  # what seeds drew once, and was mistaken
LINKS = (("*",), ("ends",), ("h1", "h2"), ("h2",))
SNAPS_BYTES = (0, 256, 128)


def checked(folder, seed, text=None):
    """The rules violated by a seed over one transport, some links captured."""
    names = registry.transports()
    name = ONCE_MISTAKEN.get(seed, names[seed % len(names)])
    text = text or fuzz.text(fuzz_draw.draw(seed), Transport.named(name))
    experiment = spec.of(yaml_source.parse(text))
    wanted = Wanted(LINKS[seed // 7 % len(LINKS)], SNAPS_BYTES[seed // 28 % len(SNAPS_BYTES)])
    outcome = experiment_run.run(experiment, Silent(), under=folder, capture=wanted)
    found = failed(check(outcome.directory, of=suites.Format.AUTO))
    return found if outcome.passed else found - {"once.ended-well", "once.verified"}


@pytest.mark.full("checked-seeds")
def test_no_drawn_fault_looks_like_a_violation(tmp_path, full):
    """Check 2,000 seeds, each over one transport; half an hour."""
    found = {}
    for seed in (*range(FULL_SEEDS if full else SHORT_SEEDS), *ONCE_MISTAKEN):
        if rules := checked(tmp_path / str(seed), seed):
            found[seed] = sorted(rules)
    assert found == {}


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda case: case.stem)
def test_what_was_mistaken_once_is_not_again(tmp_path, case):
    source = yaml_source.read(case)
    assert checked(tmp_path, spec.of(source).seeds[0], case.read_text()) == set()
