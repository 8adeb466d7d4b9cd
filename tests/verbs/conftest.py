# SPDX-License-Identifier: GPL-2.0-or-later
"""Two RNICs on an imagined cable, and their verbs."""

import dataclasses

import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from softroce_lab.verbs import (
    AH,
    CQ,
    GID,
    MR,
    PD,
    QP,
    SGE,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)
from softroce_lab.verbs.enums import IBV_ACCESS_LOCAL_WRITE

ADDRESSES = (0x0A000001, 0x0A000002)
QKEY = 0x11111111


def message_config(address, **settings):
    config = _native.MessageConfig()
    config.address = address
    for name, value in settings.items():
        setattr(config, name, value)
    return config


@pytest.fixture
def pair():
    """For all verbs, and for the policy csa_ud on them."""
    engine = registry.find("csa_ud").engine()
    return _native.Pair(*(message_config(address, **engine) for address in ADDRESSES), 1)


@pytest.fixture
def contexts(pair):
    made = [Context(pair.side(which)) for which in range(2)]
    yield made
    for context in made:
        context.close()


@pytest.fixture
def context(contexts):
    return contexts[0]


@pytest.fixture
def pd(context):
    return PD(context)


@dataclasses.dataclass
class UdResources:
    """One side of a conversation over UD: everything down to a queue pair in RTS."""

    context: Context
    pd: PD
    cq: CQ
    mr: MR
    qp: QP

    def sge(self, length, offset=0, mr=None):
        mr = mr or self.mr
        return SGE(mr.buf + offset, length, mr.lkey)

    def route_to(self, other):
        gid = other.context.query_gid(1, 0)
        return AH(self.pd, attr=AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(gid.gid))))

    def send(self, other, length, *, offset=0, qkey=QKEY, **options):
        request = SendWR(num_sge=1, sg=[self.sge(length, offset)], **options)
        request.set_wr_ud(self.route_to(other), other.qp.qp_num, qkey)
        self.qp.post_send(request)

    def receive(self, length, *, offset=0, **options):
        self.qp.post_recv(RecvWR(num_sge=1, sg=[self.sge(length, offset)], **options))


def ud_resources(context, *, cap=None, qkey=QKEY, **init):
    pd = PD(context)
    cq = CQ(context, 16)
    mr = MR(pd, 16384, IBV_ACCESS_LOCAL_WRITE)
    attr = QPAttr()
    attr.qkey = qkey
    cap = cap or QPCap(max_send_wr=16, max_recv_wr=16)
    return UdResources(
        context, pd, cq, mr, QP(pd, QPInitAttr(scq=cq, rcq=cq, cap=cap, **init), attr)
    )


@pytest.fixture
def talkers(contexts):
    return [ud_resources(context) for context in contexts]
