# SPDX-License-Identifier: GPL-2.0-or-later
"""Contexts: what can be asked about the device, its port and its addresses."""

import errno

import pytest

from softroce_lab import _native
from softroce_lab.verbs import (
    AH,
    GID,
    AHAttr,
    Context,
    GlobalRoute,
    PyverbsRDMAError,
    PyverbsUserError,
    get_device_list,
)
from softroce_lab.verbs.enums import *
from tests.refusals import refused
from tests.verbs.conftest import ADDRESSES, message_config
from tests.verbs.sides import Side, connect, run

IPV6 = (GID("fd53::1"), GID("fd53::2"))


def test_the_device(context):
    attr = context.query_device()
    limits = context.endpoint.limits()
    assert {name: getattr(attr, name) for name in limits if hasattr(attr, name)} == {
        name: value for name, value in limits.items() if name != "max_inline_data"
    }
    assert attr.phys_port_cnt == attr.max_pkeys == 1
    assert attr.atomic_caps == IBV_ATOMIC_HCA
    assert "max_qp" in str(attr)


def test_a_device_is_found_by_its_name_while_it_is_open(pair):
    others = names_of_devices()
    with Context(pair.side(0), name="mine", next_hop_mac=7) as opened:
        assert names_of_devices() == sorted([*others, b"mine"])
        (device,) = (each for each in get_device_list() if each.name == b"mine")
        assert "Device mine" in str(device)
        with Context(name="mine") as found:
            assert (found.endpoint, found.next_hop_mac) == (opened.endpoint, 7)
            assert found.name == "mine"
        assert names_of_devices() == sorted([*others, b"mine"])
        with pytest.raises(PyverbsRDMAError, match=r"Failed to find device none\n.*here: .*mine"):
            Context(name="none")
    assert names_of_devices() == others
    with pytest.raises(PyverbsUserError, match="Device name must be provided"):
        Context()


def names_of_devices():
    """Other tests may have some open."""
    return [each.name for each in get_device_list()]


@pytest.mark.parametrize(
    ("mtu", "enum"), [(1024, IBV_MTU_1024), (2048, IBV_MTU_2048), (4096, IBV_MTU_4096)]
)
def test_the_port(mtu, enum):
    pair = _native.Pair(*(message_config(each, path_mtu=mtu) for each in ADDRESSES), 1)
    attr = Context(pair.side(0)).query_port(1)
    assert (attr.state, attr.link_layer) == (IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET)
    assert attr.max_mtu == attr.active_mtu == enum
    assert (attr.gid_tbl_len, attr.pkey_tbl_len, attr.max_msg_sz) == (1, 1, 1 << 31)
    assert "max_mtu" in str(attr)


def test_violations_are_counted(pair, contexts):
    alice, bob = (Side(context, IBV_QPT_UD) for context in contexts)
    connect(alice, bob)
    alice.post(IBV_WR_SEND, bob, 8, qkey=7)
    run(pair)
    assert contexts[1].query_port(1).qkey_viol_cntr == 1
    assert contexts[0].query_port(1).qkey_viol_cntr == 0


def test_there_is_one_port_with_one_pkey(context):
    assert context.query_pkey(1, 0) == 0xFFFF
    refused(errno.EINVAL, context.query_pkey, 1, 1)
    for port in (0, 2, -1, 1 << 70):
        refused(errno.EINVAL, context.query_port, port)
        refused(errno.EINVAL, context.query_pkey, port, 0)
        refused(errno.EINVAL, context.query_gid, port, 0)
    assert context.num_comp_vectors == 1


def test_the_gid_table(context):
    assert context.add_gid(IPV6[0]) == 1
    assert [context.query_gid(1, index) for index in range(2)] == [
        GID("::ffff:10.0.0.1"),
        IPV6[0],
    ]
    table = context.query_gid_table()
    assert [(each.gid, each.gid_index, each.port_num) for each in table] == [
        (GID("::ffff:10.0.0.1"), 0, 1),
        (IPV6[0], 1, 1),
    ]
    assert context.query_gid_table(1) == table[:1]
    assert context.query_gid_ex(1, 1) == table[1]
    assert table[0].gid_type == IBV_GID_TYPE_ROCE_V2
    assert context.query_port(1).gid_tbl_len == 2
    for index in (2, -1, 1 << 70):
        refused(errno.EINVAL, context.query_gid, 1, index)


@pytest.mark.parametrize("service", [IBV_QPT_RC, IBV_QPT_UD])
@pytest.mark.parametrize("index", [0, 1])
def test_hosts_of_two_ip_versions_speak_both(pair, contexts, service, index):
    for context, gid in zip(contexts, IPV6, strict=True):
        context.add_gid(gid)

    class Through(Side):
        def route_to(self, other):
            gid = other.context.query_gid(1, index)
            return AHAttr(is_global=1, gr=GlobalRoute(gid, sgid_index=index))

    alice, bob = (Through(context, service) for context in contexts)
    connect(alice, bob)
    data = alice.fill()
    bob.receive(1000)
    alice.post(IBV_WR_SEND, bob, 1000)
    run(pair)
    assert bob.ends() == [(0, IBV_WC_SUCCESS)]
    assert bytes(bob.memory[bob.head : bob.head + 1000]) == data[:1000]
    if service == IBV_QPT_UD:
        wc_grh = bytes(bob.memory[:40])
        assert wc_grh[0] >> 4 == (6 if index else 0)


@pytest.mark.parametrize(("index", "gid"), [(0, IPV6[1]), (1, GID("::ffff:10.0.0.2"))])
def test_an_address_of_the_other_version_is_not_reached(pd, context, index, gid):
    context.add_gid(IPV6[0])
    attr = AHAttr(is_global=1, gr=GlobalRoute(gid, sgid_index=index))
    refused(errno.EINVAL, lambda: AH(pd, attr=attr))


def test_an_index_beyond_the_table(pd):
    attr = AHAttr(is_global=1, gr=GlobalRoute(GID("::ffff:10.0.0.2"), sgid_index=9))
    refused(errno.EINVAL, lambda: AH(pd, attr=attr))


def test_a_closed_context_answers_nothing(pair):
    context = Context(pair.side(0))
    context.close()
    for call in (
        context.query_device,
        lambda: context.query_port(1),
        lambda: context.query_gid(1, 0),
        lambda: context.query_gid_table(),
        lambda: context.query_pkey(1, 0),
        lambda: context.add_gid(IPV6[0]),
        lambda: context.get_async_event(0),
    ):
        refused(errno.EINVAL, call)
