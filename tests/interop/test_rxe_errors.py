# SPDX-License-Identifier: GPL-2.0-or-later
"""The guest tells which function of rdma_rxe ended a queue pair."""

from tests.interop import rxe

WRITE = rxe.Cell("kernel", "rc", "write", 3000, 1024, 0)
REFUSED = 10


def test_a_refused_request_is_ended_by_the_completer(conversation):
    conversation.qp_errors.clear()
    conversation.set_link(WRITE)
    conversation.connect(WRITE, psn=0)
    requester, _, place = conversation.ends(WRITE)
    requester.post(opcode="write", at=rxe.SOURCE, length=WRITE.size, there=place["addr"],
                   rkey=place["rkey"] ^ 1)  # fmt: skip
    (done,) = requester.poll(count=1, timeout_s=rxe.END_S)["completions"]
    assert done[1] == REFUSED
    assert "called by rxe_completer+" in conversation.qp_errors.report()
