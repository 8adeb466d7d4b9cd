# SPDX-License-Identifier: GPL-2.0-or-later
"""A user's policy hears where its packets are trimmed."""

import pytest

from softroce_lab.experiment import run as experiment_run
from softroce_lab.experiment import spec
from softroce_lab.experiment.reporter import Silent
from softroce_lab.inputs import yaml_source
from tests import own_policy
from tests.two_switches import TOPOLOGY

TEXT = f"""\
name: trimmed
{TOPOLOGY}transports: [{{policy: "FILE:Own"}}]
workload: {{kind: point-to-point, bytes: 200kB, message: 40kB}}
deadline: 1s
"""
BODY = """\
    def on_trimmed(self, receive, packet, last_hop, now_ns):
        assert 0 <= packet < receive.count and last_hop is EXPECTED
        return [Feedback(receive)]
"""


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize(("link", "last_hop"), [(1, False), (2, True)])
def test_a_policy_hears_whether_the_last_hop_trimmed(tmp_path, link, last_hop, expected):
    """One that raises fails: so the hook is called."""
    file = tmp_path / "own.py"
    file.write_text(own_policy.named("Own", BODY.replace("EXPECTED", str(expected))))
    source = yaml_source.parse(TEXT.replace("FILE", str(file)), "trimmed.yaml")
    slow = spec.parse_override(f"topology.links.{link}.rate=1Gbit limit 10 trim")
    experiment = spec.of(spec.with_overrides(source, [slow]))
    (run,) = experiment_run.run(experiment, Silent(), under=tmp_path).runs
    assert bool(run.reasons) == (expected != last_hop), run.reasons
