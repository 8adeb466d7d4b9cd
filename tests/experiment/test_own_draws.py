# SPDX-License-Identifier: GPL-2.0-or-later
"""What is drawn for a host or a job does not depend on other hosts and jobs."""

import pytest

from softroce_lab.plan.effects import stream_key
from softroce_lab.workloads.moe import popularity, tokens_of_experts
from softroce_lab.workloads.schedule import Send
from tests.experiment.kinds.examples import of

FABRIC = """\
name: same
topology:
  generator: {{kind: star, hosts: {hosts}, access: {{rate: 10Gbit limit 16, delay: 1us}}}}
transports: [csa_ud, rc]
payload: verify
seeds: [{seed}]
faults: [{{name: loss, links: "*->h1", loss: random 1%}}]
workload: {workload}
"""
PROGRAM = (
    r'"num_ranks 3\nrank 0 {\nl0: calc 500\nl1: send 9000b to 1\nl1 requires l0\n}\n'
    r'rank 1 {\nl0: recv 9000b from 0\nl1: send 5b to 2\nl1 requires l0\n}\n'
    r'rank 2 {\nrecv 5b from 1\n}"'
)  # fmt: skip
KINDS = {
    "flows": "{kind: permutation, bytes: 40kB, message: 8kB, repeat: 2, skew: 5us}",
    "collective": "{kind: collective, op: all-reduce, algorithm: double-tree, bytes: 40kB}",
    "open-loop": "{kind: open-loop, load: 60%, sizes: {from: 1B, to: 9kB}, duration: 100us, "
    "incast: {degree: 2, share: 20%, bytes: 2kB}}",
    "moe": "{kind: moe, tokens: 20, hidden: 50, experts: 12, top_k: 3, skew: 0.7, token_time: 1us}",
    "training": "{kind: training, layers: 2, forward: 5us, jitter: 20%, gradient: 9kB, steps: 2, "
    "activation: 4kB, parallel: {pipeline: 2}}",
    "goal": f"{{kind: goal, program: {PROGRAM}}}",
}
KINDS["jobs"] = (
    "{kind: jobs, jobs: ["
    f"{{name: a, workload: {KINDS['moe'].replace('}', ', hosts: [h1, h3]}')}}}, "
    f"{{name: b, workload: {KINDS['training'].replace('steps: 2', 'hosts: [h4, h2]')}}}]}}"
)


def experiment(workload, hosts=4, seed=1):
    return of(FABRIC.format(hosts=hosts, workload=workload, seed=seed))


# ---------------------------------------------------------------- a host or a job more


def test_a_host_more_changes_no_other_host_s_tokens():
    """Of each host it is drawn how many tokens go to each expert; experts move to the new host."""

    def tokens(hosts):
        work = experiment(KINDS["moe"], hosts).workload(1)
        gate = work.gate
        weights = popularity(gate.experts, gate.skew, stream_key(work.seed, "layer", 0))
        sent = {}
        for host in work.ranks:
            key = stream_key(work.seed, "gate", 0, host)
            sent[host] = tokens_of_experts(gate.tokens, gate.top_k, weights, key).tolist()
        for message in work.messages():
            if message.key[1] == 0:
                share = gate.experts // hosts
                at = message.destination * share
                copies = sum(sent[message.source][at : at + share])
                assert message.length_bytes == copies * work.token_bytes
        return sent

    three, four = tokens(3), tokens(4)
    assert three == {host: four[host] for host in three}


def test_a_host_more_changes_no_other_host_s_skew():
    workload = "{kind: ring-all-gather, bytes: 8kB, repeat: 3, skew: 9us}"

    def begins(hosts):
        of_all = experiment(workload, hosts).workload(1).schedule().of
        return [
            sorted({each.at_ns for each in of_all[host] if isinstance(each, Send)})
            for host in range(3)
        ]

    assert begins(3) == begins(4)
    assert len(begins(3)[0]) > 1


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "jobs"])
def test_a_job_more_changes_nothing_of_the_other(kind):
    """Messages, their order and times, computations, bytes: whatever else there is, and where."""
    single = KINDS[kind]
    one = f"{{name: one, workload: {single[:-1]}, hosts: [h1, h4, h2, h3]}}}}"
    more = "{name: more, workload: {kind: moe, tokens: 9, hidden: 9, experts: 2, hosts: [h5, h6]}}"
    found = []
    for jobs in (one, f"{more}, {one}", f"{one}, {more}"):
        work = experiment(f"{{kind: jobs, jobs: [{jobs}]}}", hosts=6).workload(1)
        graph = work.schedule().of
        hosts = work.jobs["one"].ranks
        initial = [work.initial(host, 7).tobytes() for host in hosts]
        expected = [work.expected(host, 7).tobytes() for host in hosts]
        found.append(({host: graph[host] for host in hosts}, initial, expected))
    assert found[0] == found[1] == found[2]
