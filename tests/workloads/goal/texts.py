# SPDX-License-Identifier: GPL-2.0-or-later
"""GOAL files as texts."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.workloads.goal import parser
from softroce_lab.workloads.goal.workload import Goal
from softroce_lab.workloads.schedule import Compute

FILE = "some.goal"
GRAMMAR = """\
/* a comment
   of two lines */
num_ranks 2 // two
rank 0 {
l1: send 10b to 1 tag 4 cpu 1 nic 0
calc 100
l2: calc 7 cpu 3
l1 requires l2
l3: recv 5 b from 1
l2 irequires l3 /* which comes later */
}

rank 1{
  recv 10b from 0 tag 4
\tsend 5b to 0\r
}
"""


def of(text):
    """The workload of a text; rank n is host n."""
    program = parser.parse(text, FILE)
    return Goal(program, range(len(program.ranks)))


def ranks(*blocks):
    """A text of these blocks: rank 0 begins in line 2, its first operation stands in line 3."""
    texts = (f"rank {rank} {{\n{block}\n}}\n" for rank, block in enumerate(blocks))
    return f"num_ranks {len(blocks)}\n" + "".join(texts)


CROSSED = ranks(
    "a: send 1b to 1 tag 1\nb: send 2b to 1 tag 2\nr: recv 3b from 1\na requires r",
    "a: recv 1b from 0 tag 1\nb: recv 2b from 0 tag 2\ns: send 3b to 0\ns requires b",
)
"""The first send waits for the second one: in the file's order nothing would ever be sent."""


def assert_refused(text, line, column, what):
    """An error at this place."""
    with pytest.raises(UserError, match=what) as refused:
        of(text)
    found = refused.value
    assert (found.file, found.line, found.column) == (FILE, line, column)


def output(workload):
    """What each host does, but for offsets in buffers."""
    return {
        host: [(type(each), each.requires, each.irequires, *_own(each)) for each in vertices]
        for host, vertices in workload.schedule().of.items()
    }


def _own(vertex):
    if isinstance(vertex, Compute):
        return vertex.duration_ns, vertex.cpu
    message = vertex.message
    return message.key, message.source, message.destination, message.length_bytes


def dissemination(count):
    """LogGOPSim's dissemination_16.goal and dissemination_32.goal, for any power of two of ranks.

    In round i rank r sends to r + 2**i and receives from r - 2**i; a send requires the receive of
    the round before.
    """
    lines = [f"num_ranks {count}", ""]
    for rank in range(count):
        lines.append(f"rank {rank} {{")
        for number in range(count.bit_length() - 1):
            to, source = (rank + (1 << number)) % count, (rank - (1 << number)) % count
            lines.append(f"l{2 * number + 1}: send 1b to {to} tag 0")
            if number:
                lines.append(f"l{2 * number + 1} requires l{2 * number}")
            lines.append(f"l{2 * number + 2}: recv 1b from {source} tag 0")
        lines += ["}", ""]
    return "\n".join(lines)


def binomial_tree(count):
    """LogGOPSim's src/LogGOPSim/binary_tree_32.goal, for any number of ranks: 1 byte from rank 0.

    Rank r receives from r without its highest bit; it sends to r plus each higher power of two.
    """
    lines = [f"num_ranks {count}", ""]
    for rank in range(count):
        lines.append(f"rank {rank} {{")
        if rank:
            lines.append(f"l1: recv 1b from {rank - (1 << rank.bit_length() - 1)} tag 0")
        children = [rank + (1 << n) for n in range(rank.bit_length(), count.bit_length())]
        for number, child in enumerate((c for c in children if c < count), 1 + bool(rank)):
            lines.append(f"l{number}: send 1b to {child} tag 0")
            lines += [f"l{number} requires l1"] * bool(rank)
        lines += ["}", ""]
    return "\n".join(lines)
