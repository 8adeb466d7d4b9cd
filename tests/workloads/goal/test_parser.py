# SPDX-License-Identifier: GPL-2.0-or-later
"""The grammar of GOAL files, and what is wrong with a file."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softroce_lab.errors import UserError
from softroce_lab.workloads.goal import parser
from softroce_lab.workloads.goal.parser import Act
from tests.workloads.goal.texts import FILE, GRAMMAR, assert_refused, ranks


def test_all_of_the_grammar():
    program = parser.parse(GRAMMAR, FILE)
    first, second = program.ranks
    assert [(each.act, each.amount) for each in first] == [
        (Act.SEND, 10), (Act.COMPUTE, 100), (Act.COMPUTE, 7), (Act.RECEIVE, 5)
    ]  # fmt: skip
    assert [(each.peer, each.tag) for each in first] == [(1, 4), (-1, 0), (-1, 0), (1, 0)]
    assert [each.cpu for each in first] == [1, 0, 3, 0]
    assert [each.label for each in first] == ["l1", None, "l2", "l3"]
    assert [(each.requires, each.irequires) for each in first] == [
        ([2], []), ([], []), ([], [3]), ([], [])
    ]  # fmt: skip
    assert [(each.line, each.column) for each in first] == [(5, 1), (6, 1), (7, 1), (9, 1)]
    assert [(each.act, each.line, each.column) for each in second] == [
        (Act.RECEIVE, 14, 3), (Act.SEND, 15, 2)
    ]  # fmt: skip


def test_ranks_come_in_any_order_and_may_have_nothing_to_do():
    program = parser.parse("num_ranks 3\nrank 2 {\ncalc 1\n}\nrank 0 { }", FILE)
    assert [len(each) for each in program.ranks] == [0, 0, 1]


@pytest.mark.parametrize(
    ("text", "line", "column", "what"),
    [
        ("", 1, 1, "expected 'num_ranks', found the end of the file"),
        ("rank 0 {\n}", 1, 1, "expected 'num_ranks', found 'rank'"),
        ("num_ranks\n", 1, 10, "expected how many ranks, found the end of the line"),
        ("num_ranks 1\n", 1, 11, "two ranks at least"),
        ("num_ranks 65537\n", 1, 11, "not between 0 and 65536"),
        ("num_ranks " + "9" * 5000, 1, 11, "not between 0 and 65536"),
        ("num_ranks 2\nrank 2 {\n}", 2, 6, "no rank 2: 2 ranks"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}", 4, 6, "rank 0 stands twice"),
        ("num_ranks 2\nrank 0\n{\n}", 2, 7, "expected '{', found the end of the line"),
        ("num_ranks 2\nrank 0 {\ncalc 1\n", 4, 1, "found the end of the file"),
        ("num_ranks 2\n/* rank 0 {", 2, 1, "this comment has no end"),
        ("num_ranks 2\n  rank 0 { ;", 2, 12, "a GOAL file has no ';'"),
        ("num_ranks 2 3\n", 1, 13, "expected 'rank', found '3'"),
    ],
)
def test_what_is_not_in_the_grammar_is_refused_at_its_place(text, line, column, what):
    assert_refused(text, line, column, what)


@pytest.mark.parametrize(
    ("operation", "column", "what"),
    [
        ("wait 5", 6, "expected ':', requires or irequires, found '5'"),
        ("l1: wait 5", 5, "expected send, recv or calc"),
        (": calc 5", 1, "expected send, recv, calc, a label or '}', found ':'"),
        ("rank: calc 5", 1, "a label"),
        ("calc", 5, "expected a time in nanoseconds"),
        ("calc -1", 6, "not between"),
        ("calc 1000000000000001", 6, "not between"),
        ("calc 5 tag 3", 8, "expected the end of the line, found 'tag'"),
        ("calc 5 cpu", 11, "expected a cpu"),
        ("calc 5 cpu 4294967296", 12, "a cpu: '4294967296' is not between"),
        ("calc 5 calc 6", 8, "expected the end of the line"),
        ("send 5 to 1", 8, "expected 'b', found 'to'"),
        ("send 4294967296b to 1", 6, "a size in bytes"),
        ("send 5b from 1", 9, "expected 'to', found 'from'"),
        ("recv 5b to 1", 9, "expected 'from', found 'to'"),
        ("send 5b to x", 12, "expected a rank, found 'x'"),
        ("send 5b to 2", 12, "there is no rank 2: 2 ranks"),
        ("send 5b to -1", 12, "there is no rank -1"),
        ("send 5b to 0", 12, "rank 0 is on both ends"),
        ("recv 5b from -1", 14, "from any rank is not supported"),
        ("recv 5b from 1 tag -1", 20, "any tag is not supported"),
        ("send 5b to 1 tag 1 tag 1", 20, "expected the end of the line, found 'tag'"),
        ("l1 requires", 12, "expected a label"),
        ("l1 requires l1", 1, "rank 0 has no label 'l1'"),
        ("l1: calc 1\nl1 requires l2", (4, 13), "rank 0 has no label 'l2'"),
        ("l1: calc 1\nl1: calc 1", (4, 1), "label 'l1' stands in line 3 already"),
    ],
)
def test_a_wrong_operation_is_refused_at_its_place(operation, column, what):
    line, column = column if isinstance(column, tuple) else (3, column)
    assert_refused(ranks(operation, "calc 1"), line, column, what)


@given(st.text(st.sampled_from("num_ranks 2\nrank 0 {}:b/*l1 send to tag calc requires -")))
def test_any_text_is_a_program_or_an_error_with_its_place(text):
    try:
        program = parser.parse(text, FILE)
    except UserError as error:
        assert re.match(rf"{FILE}:\d+:\d+: ", str(error))  # noqa: PT017 - of either outcome
    else:
        assert len(program.ranks) == 2
