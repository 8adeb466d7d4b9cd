# SPDX-License-Identifier: GPL-2.0-or-later
"""How the file writes several workloads at the same time."""

import pytest

from softroce_lab.workloads.moe import MixtureOfExperts
from tests.experiment.kinds.examples import assert_refused, with_workload

INCAST = "{name: a, workload: {kind: incast, hosts: [h1, h2], bytes: 1kB}}"


def moe(name, hosts="[h3, h4]"):
    gate = "tokens: 64, hidden: 4, experts: 8"
    return f"{{name: {name}, workload: {{kind: moe, hosts: {hosts}, {gate}}}}}"


def two_of(hosts):
    """A GOAL program of two ranks, and more hosts."""
    program = r'"num_ranks 2\nrank 0 {\nsend 1b to 1\n}\nrank 1 {\nrecv 1b from 0\n}\n"'
    return f"{{name: b, workload: {{kind: goal, hosts: {hosts}, program: {program}}}}}"


def jobs(*each):
    return f"{{kind: jobs, jobs: [{', '.join(each)}]}}"


def test_jobs_have_names_and_hosts():
    work = with_workload(jobs(INCAST, moe("b", "[h6, h3]"))).workload(1)
    assert [*work.jobs] == ["a", "b"]
    assert work.ranks == (0, 1, 5, 2)
    assert isinstance(work.jobs["b"], MixtureOfExperts)


@pytest.mark.parametrize(
    ("workload", "at", "what"),
    [
        ("{kind: jobs, jobs: []}", "[", "1"),
        (jobs(INCAST, INCAST), "jobs:", "two jobs are called 'a'"),
        (jobs(INCAST, moe("b", "[h2, h3]")), "[h2, h3]", "h2 takes part in a, too"),
        (jobs(INCAST, two_of("[h5, h6, h2]")), "[h5, h6, h2]", "h2 takes part in a, too"),
        (jobs(INCAST, moe("b", "[]")), "[]}"[:2], "two hosts at least"),
        (jobs(INCAST, moe("b", "[h3, h9]")), "h9", "no host 'h9'"),
        (jobs(moe("b", "[h3, h4, h5]")), "8}", "not spread evenly over 3 hosts"),
        (jobs(moe("b").replace("hosts: [h3, h4], ", "")), "8}", "not spread evenly over 6"),
        (jobs(f"{{name: '', workload: {INCAST[20:-1]}}}"), "''", "match|pattern"),
        ("{kind: jobs, jobs: [{name: a}]}", "{name", "'workload' is missing"),
        ("{kind: jobs, hosts: 4, jobs: []}", "hosts", "in the workload of each job"),
        (jobs(f"{{name: b, workload: {jobs(INCAST)}}}"), "{kind: jobs", "unknown kind 'jobs'"),
    ],
)
def test_what_does_not_fit_is_refused_at_its_place(workload, at, what):
    assert_refused(workload, at, what)


def test_a_file_is_no_job(tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    file = f"{{name: f, workload: {{kind: file, path: {tmp_path / 'f'}}}}}"
    assert_refused(jobs(file), "file,", "a file workload is no job")
