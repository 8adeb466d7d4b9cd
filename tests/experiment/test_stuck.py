# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy that repairs no loss: the run ends early and names the packet that all wait for."""

import re

from softroce_lab.experiment import spec, virtual
from softroce_lab.inputs.yaml_source import parse

POLICY = """
from softroce_lab.transports.policy import MessagePolicy, SetTimer

class Stuck(MessagePolicy):
    name = "stuck"

    def on_send_posted(self, send, now_ns):
        yield SetTimer(send, now_ns + 1_000_000)

    def on_send_timer(self, send, now_ns):
        yield SetTimer(send, now_ns + 1_000_000)
"""
EXPERIMENT = """
name: stuck
topology: {{generator: {{kind: star, hosts: 4, access: {{rate: 10Gbit, delay: 5us}}}}}}
transports: [{{policy: "{file}:Stuck"}}]
workload: {{kind: ring-all-reduce, bytes: 64KiB, message: 16KiB}}
faults: [{{name: loss, links: "h2->s1", drop: {{tail: 1, iter: 1}}}}]
blackout: 10ms
deadline: 1000s
"""


def test_a_run_without_progress_ends_and_names_the_packet_that_all_wait_for(tmp_path):
    file = tmp_path / "stuck.py"
    file.write_text(POLICY)
    experiment = spec.of(parse(EXPERIMENT.format(file=file)))
    [transport] = experiment.transports
    found = virtual.run(experiment, transport, 1, lambda _: None)
    assert found.end_ns < 10**9
    stalled, lost, undelivered = found.reasons
    assert stalled.startswith("no packet with data arrived for ")
    named = re.fullmatch(r"packet \d+ of (.* from h2 to h3) was lost at .* and never arrived", lost)
    assert undelivered.endswith(f"not delivered, the first {named[1]}")


def test_a_run_whose_hosts_wait_for_their_time_goes_on():
    text = EXPERIMENT.format(file="").replace('{policy: ":Stuck"}', "csa_ud")
    experiment = spec.of(parse(text.replace("16KiB}", "16KiB, repeat: 4, every: 1s}")))
    found = virtual.run(experiment, experiment.transports[0], 1, lambda _: None)
    assert found.reasons == []
    assert found.end_ns > 3 * 10**9
