# SPDX-License-Identifier: GPL-2.0-or-later
"""Whatever stands in the file of a workload: it is an error with a place, soon, or it can run."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.experiment import spec
from softroce_lab.workloads.goal import parser
from softroce_lab.workloads.goal.workload import Goal
from tests.experiment.kinds.examples import PLAIN, with_workload
from tests.workloads.goal.texts import ranks

OPEN_LOOP = {"kind": "open-loop", "load": "60%", "sizes": "[1kB]", "duration": "1ms"}
MOE = {"kind": "moe", "tokens": "4", "hidden": "4", "experts": "6"}
TRAINING = {"kind": "training", "layers": "2", "forward": "1us", "gradient": "4kB"}
COLLECTIVE = {"kind": "collective", "op": "all-reduce", "bytes": "1kB"}
ABSURD = ("nan", ".nan", ".inf", "-1", "1e400", "''", "[]", "{}", "true", "9" * 70, "ü")
BAD = [
    (OPEN_LOOP, "load", ("0%", "0", "-5%", "101%", "nan%", "inf%", "60", "6\uff16%")),
    (OPEN_LOOP, "sizes", (
        "[0B]", "[-1B]", "[1e30B]", "{from: 2kB, to: 1kB}", "{points: []}", "{points: [5]}",
        "{points: [[0B, 0%]]}", "{points: [[0B, 0%], [0B, 100%]]}",
        "{points: [[0B, 0%], [5B, nan%]]}",
        "{points: [[0B, 0%], [5B, 1e-30%], [6B, 100%]]}", "{points: [[[], {}]]}", "[5GiB]",
    )),
    (OPEN_LOOP, "duration", ("0s", "1ns", "1e30s", "1000000s")),
    (OPEN_LOOP, "incast", (
        "{degree: 0, share: 5%}", "{degree: 6, share: 5%}", "{degree: 2, share: 0%}",
        "{degree: 2, share: 100%}", "{degree: 2, share: nan%}", "{degree: 2, share: 5%, bytes: 0B}",
        "5",
    )),
    (MOE, "tokens", ("0", "1048577", "1.5")),
    (MOE, "experts", ("7", "0", "1048577")),
    (MOE, "top_k", ("7", "0")),
    (MOE, "skew", ("17",)),
    (MOE, "repeat", ("0", "65537")),
    (MOE, "hosts", ("1", "0", "7", "[h1]", "[h1, h1]", "[h1, nohost]", "[h1, 5]", "[[h1]]")),
    (TRAINING, "layers", ("0", "1048576")),
    (TRAINING, "jitter", ("101%", "nan%")),
    (TRAINING, "gradient", ("3B", "16TiB", "4B")),
    (TRAINING, "bucket", ("0B", "3B")),
    (TRAINING, "activation", ("3B", "32TiB")),
    (TRAINING, "microbatches", ("0", "1048576")),
    (TRAINING, "steps", ("0", "65537")),
    (TRAINING, "parallel", (
        "{data: 4}", "{tensor: 4}", "{tensor: 0}", "{tensor: 1048576}", "{expert: 4}", "{x: 1}",
    )),
    (TRAINING, "algorithm", ("recursive-halving", "5")),
    (COLLECTIVE, "bytes", ("16TiB", "0B", "3B")),
    (COLLECTIVE, "algorithm", ("pairwise",)),
]  # fmt: skip


def written(base, key, value):
    items = {**base, key: value}
    return f"{{{', '.join(f'{name}: {text}' for name, text in items.items())}}}"


@pytest.mark.parametrize(("base", "key"), [(base, key) for base, key, _ in BAD])
def test_bad_values_are_refused_at_their_place(base, key):
    """In the line of the workload, before anything is made of it."""
    [bad] = [each for other, name, each in BAD if (other, name) == (base, key)]
    for value in (*ABSURD, *bad):
        if (key, value) != ("parallel", "{}"):  # all data-parallel
            assert refused(written(base, key, value)).line == 4, value


def refused(workload):
    with pytest.raises(UserError) as error:
        with_workload(workload)
    assert error.value.column > 0
    assert len(error.value.what) <= 300
    return error.value


@pytest.mark.parametrize(
    "workload",
    [
        "{kind: moe, tokens: 1048576, hidden: 4, experts: 1048572, top_k: 1000}",
        "{kind: moe, tokens: 1048576, hidden: 1048576, experts: 6, message: 1B}",
        "{kind: training, layers: 2, forward: 1us, gradient: 1GiB, bucket: 24B}",
        "{kind: training, layers: 2, forward: 1us, gradient: 1GiB, message: 4B}",
        "{kind: open-loop, load: 60%, sizes: web-search, duration: 1s, "
        "incast: {degree: 2, share: 5%, bytes: 1B}}",
        "{kind: point-to-point, bytes: 16TiB, message: 1B}",
        "{kind: permutation, bytes: 1kB, message: 1B, repeat: 65536}",
        "{kind: jobs, jobs: [{name: a, workload: {kind: moe, tokens: 1048576, hidden: 1048576, "
        "experts: 6, message: 1B}}]}",
    ],
)
def test_more_than_fits_is_refused_before_it_is_made(workload):
    assert "at most" in refused(workload).what


@pytest.mark.parametrize(
    "jobs",
    [
        "[]", "{}", "5", "''", "[{}]", "[5]", "[{name: a}]", "[{name: 5, workload: {kind: moe}}]",
        *(
            f"[{{name: {name}, workload: {{kind: incast, bytes: 1kB}}}}]"
            for name in ("''", "ü", "a b", "../x", "a" * 41, "[]")
        ),
        "[{name: a, workload: {kind: incast, bytes: 1kB, hosts: []}}]",
        "[{name: a, workload: {kind: incast, bytes: 1kB, hosts: [h1]}}]",
        "[{name: a, workload: {kind: jobs, jobs: []}}]",
        "[{name: a, workload: {kind: file, path: /etc/hostname}}]",
        "[{name: a, workload: {kind: incast, bytes: 1kB, hosts: [h1, h2]}}, "
        "{name: a, workload: {kind: incast, bytes: 1kB, hosts: [h3, h4]}}]",
        "[{name: a, workload: {kind: incast, bytes: 1kB, hosts: [h1, h2]}}, "
        "{name: b, workload: {kind: incast, bytes: 1kB, hosts: [h3, h1]}}]",
    ],
)  # fmt: skip
def test_bad_jobs_are_refused_at_their_place(jobs):
    assert refused(f"{{kind: jobs, jobs: {jobs}}}").line == 4


# ---------------------------------------------------------------- GOAL files

MANY = 20_000
FILES = {
    "empty": b"",
    "blank": b" \n\t\n",
    "binary": bytes(range(256)),
    "NUL": b"num_ranks 2\n\0",
    "one number of a megabyte": b"num_ranks " + b"9" * (1 << 20),
    "a byte order mark alone": b"\xef\xbb\xbf",
    "no ranks": b"num_ranks 0\n",
    "ranks below zero": b"num_ranks -2\n",
    "too many ranks": b"num_ranks 99999999999999999999\n",
    "digits that are none": "num_ranks \uff12\n".encode(),
    "a comment without end": b"/*" * (1 << 18),
    "braces": b"{" * (1 << 18),
    "lines": b"\n" * (1 << 22),
    "no end": b"num_ranks 2\nrank 0 {\nsend 1b to 1",
    "itself": ranks("send 1b to 0", "calc 1").encode(),
    "half a byte": ranks("send 1.5b to 1", "recv 1b from 0").encode(),
    "a size of 33 bits": ranks("send 4294967296b to 1", "recv 1b from 0").encode(),
    "a time below zero": ranks("send 1b to 1\ncalc -5", "recv 1b from 0").encode(),
    "a tag below zero": ranks("send 1b to 1 tag -3", "recv 1b from 0").encode(),
    "a label of another alphabet": ranks("ü: send 1b to 1", "recv 1b from 0").encode(),
    "sends without receives": ranks("send 1b to 1\n" * MANY, "recv 1b from 0").encode(),
    "a deep cycle": ranks(
        "l0: send 1b to 1\n"
        + "".join(f"l{n}: calc 1\nl{n} requires l{n - 1}\n" for n in range(1, MANY))
        + f"l0 requires l{MANY - 1}",
        "recv 1b from 0",
    ).encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_goal_file_is_refused(name, tmp_path):
    tmp_path.joinpath("bad.goal").write_bytes(FILES[name])
    mine = tmp_path / "mine.yaml"
    mine.write_text(PLAIN + "workload: {kind: goal, file: bad.goal}\n")
    with pytest.raises(UserError) as error:
        spec.load(mine)
    assert error.value.line
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize(
    "text",
    [
        ranks(
            "l0: send 1b to 1\n"
            + "".join(f"l{n}: calc 1\nl{n} {word} l{n - 1}\n" for n in range(1, MANY)),
            "recv 1b from 0",
        )
        for word in ("requires", "irequires")
    ]
    + [ranks("a: send 0b to 1\nb: calc 0\n" + "a requires b\n" * MANY, "recv 0b from 0")],
    ids=["deep", "deep starts", "the same dependency often"],
)
def test_a_large_program_is_read(text):
    """Chains deeper than a stack of calls."""
    program = parser.parse(text, "large.goal")
    work = Goal(program, (0, 1))
    assert work.message_count == 1
    assert len(work.schedule().of[0]) >= 2
