# SPDX-License-Identifier: GPL-2.0-or-later
"""A GOAL file, as the workload goal reads it; what is written of it says the same."""

from __future__ import annotations

from softroce_lab.errors import UserError
from softroce_lab.inputs import text_file
from softroce_lab.workloads.goal import parser, writer
from softroce_lab.workloads.goal.workload import Goal
from softroce_lab.workloads.schedule import Compute, Vertex
from tests.parser_fuzz.files import file_of, must_name

_MOST_BYTES = 1 << 20


def one(data: bytes) -> None:
    """Read it, make its schedule, write that, and read it again."""
    path = file_of("some.goal", data)
    try:
        workload = _workload(text_file.read(path, _MOST_BYTES), str(path))
    except UserError as error:
        must_name(path, error)
        return
    again = _workload("\n".join(writer.lines(workload)), "written")
    assert again.ranks == workload.ranks
    for host, vertices in workload.schedule().of.items():
        assert list(map(_output, again.schedule().of[host])) == list(map(_output, vertices))


def _workload(text: str, file: str) -> Goal:
    program = parser.parse(text, file)
    return Goal(program, range(len(program.ranks)))


def _output(vertex: Vertex) -> tuple[object, ...]:
    both = type(vertex), vertex.requires, vertex.irequires
    if isinstance(vertex, Compute):
        return *both, vertex.duration_ns, vertex.cpu
    return *both, vertex.message.key, vertex.message.length_bytes
