# SPDX-License-Identifier: GPL-2.0-or-later
"""How the file writes trainings and mixtures of experts."""

import pytest

from softroce_lab.workloads.moe import Gate
from softroce_lab.workloads.training import Model, Parallel
from tests.experiment.kinds.examples import assert_refused, with_workload

MOE = "kind: moe, tokens: 64, hidden: 32"
TRAINING = "kind: training, layers: 4, forward: 1ms, gradient: 1MiB"


def test_a_mixture_of_experts():
    more = "experts: 12, top_k: 3, skew: 0.5, token_time: 100ns, repeat: 2, message: 1KiB"
    work = with_workload(f"{{{MOE}, {more}}}").workload(3)
    assert (work.gate, work.token_bytes) == (Gate(64, 12, 3, 0.5), 64)
    assert (work.token_ns, work.layers, work.message_bytes, work.seed) == (100, 2, 1024, 3)
    plain = with_workload(f"{{{MOE}, experts: 6, bytes_per_element: 4}}").workload(1)
    assert (plain.gate, plain.token_bytes, plain.layers) == (Gate(64, 6, 1, 0.0), 128, 1)


def test_a_training():
    more = "backward: 3ms, jitter: 5%, activation: 1kB, microbatches: 3, bucket: 2MiB, steps: 7"
    mix = "parallel: {tensor: 3, pipeline: 2}, algorithm: double-tree, message: 4KiB"
    work = with_workload(f"{{{TRAINING}, {more}, {mix}}}").workload(3)
    assert work.model == Model(4, 10**6, 3 * 10**6, 1 << 20, 1000, 2 << 20, 3, 50_000)
    assert work.parallel == Parallel(data=1, tensor=3, pipeline=2)
    assert (work.algorithm, work.message_bytes, work.steps) == ("double-tree", 4096, 7)
    assert work.seed == 3


@pytest.mark.parametrize(
    ("workload", "at", "what"),
    [
        (f"{MOE}, experts: 6, top_k: 7", "top_k", "goes to 7 experts, and there are 6"),
        (f"{MOE}, experts: 6, top_k: 0", "0", "1"),
        (f"{MOE}, experts: 8", "8", "8 experts are not spread evenly over 6 hosts"),
        (f"{MOE}, experts: 6, skew: -1", "-1", "0"),
        ("kind: moe, tokens: 0, hidden: 32, experts: 6", "0, ", "1"),
        (f"{MOE}, experts: 6, bytes: 1MiB", "bytes", "bytes"),
        (f"{MOE}, experts: 6, repeat: 21846", "21846", "21,846 layers on 6 hosts, 21,845 at most"),
        (f"{TRAINING}, parallel: {{data: 4}}", "{data", "is 4, and there are 6 hosts"),
        (f"{TRAINING}, activation: 4B, parallel: {{tensor: 4}}", "{tensor", "is 4, and there"),
        (f"{TRAINING}, activation: 4B, parallel: {{expert: 4}}", "4}", "do not divide data: 6"),
        (f"{TRAINING}, activation: 4B, parallel: {{pipeline: 3}}", "3}", "into 3 stages"),
        (f"{TRAINING}, parallel: {{tensor: 2}}", "parallel", "exchange activations"),
        (f"{TRAINING}, parallel: {{data: 0}}", "0}", "1"),
        (f"{TRAINING}, parallel: {{model: 2}}", "model", "model"),
        (f"{TRAINING}, activation: 6B", "activation", "no whole elements"),
        (f"{TRAINING}, bucket: 3B", "bucket", "an element of float32 at least"),
        (f"{TRAINING}, bucket: 20B", "20B", "among 6 hosts sums up 24 bytes at least, not 16"),
        (f"{TRAINING[:-4]}4B, hosts: 6", "4B", "sums up 24 bytes at least, not 16"),
        (f"{TRAINING}, algorithm: tree", "algorithm", "has no algorithm 'tree'"),
        (f"{TRAINING}, jitter: 101%", "101%", "above 100%"),
        (f"{TRAINING}, jitter: [5%]", "[5%]", "expected a percentage"),
        (f"{TRAINING}, steps: 65537", "65537", "65536"),
        (
            f"{TRAINING}, activation: 4B, parallel: {{tensor: 2}}",
            "4B",
            "among 2 hosts sums up 8 bytes at least, not 4",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(workload, at, what):
    assert_refused(f"{{{workload}}}", at, what)
