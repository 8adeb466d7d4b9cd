# SPDX-License-Identifier: GPL-2.0-or-later
"""What the ready experiments have in common: transports are compared as they would be deployed."""

import pytest

from softroce_lab.experiment import spec
from softroce_lab.paths import PROJECT_ROOT

READY = sorted(path.stem for path in (PROJECT_ROOT / "workloads").glob("*.yaml"))


@pytest.mark.parametrize("name", READY)
def test_transports_are_compared_on_switches_that_hash_flows(name):
    """Hosts spread packets, as each scheme prescribes; sprayed switches are named experiments."""
    experiment = spec.load(name)
    compared = {each.name for each in experiment.transports}
    if len(compared) > 1 and not name.endswith("-sprayed"):
        assert experiment.plan(experiment.seeds[0]).load_balancing == "flow"
