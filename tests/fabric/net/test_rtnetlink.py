# SPDX-License-Identifier: GPL-2.0-or-later
import errno
import ipaddress
import os
import socket
import struct

import pytest
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from softroce_lab.fabric.net import netns, rtnetlink

LOOPBACK = 1
ADDRESS = ipaddress.ip_address("10.9.9.9")


@pytest.fixture
def aside():
    fd = netns.create()
    with netns.entered(fd):
        yield
    os.close(fd)


@pytest.mark.usefixtures("aside")
def test_what_the_kernel_refuses_is_an_error_and_the_rest_is_done():
    wrong = rtnetlink.address(4711, ADDRESS)  # no such interface
    right = rtnetlink.address(LOOPBACK, ADDRESS)
    with pytest.raises(OSError, match="No such device") as caught:
        rtnetlink.request([wrong, right])
    assert caught.value.errno == errno.ENODEV
    with pytest.raises(FileExistsError):
        rtnetlink.request([right])


# pyroute2 reads what is packed here.


def read(kind, message):
    """A message as pyroute2 decodes it."""
    header = struct.pack("=IHHII", 16 + len(message.body), message.kind, message.flags, 0, 0)
    found = kind(header + message.body)
    found.decode()
    return found


def test_pyroute2_reads_a_pair():
    ends = [
        rtnetlink.veth_end(100 + n, f"eth{n}", f"02:53:00:00:00:0{n}", 1500, 7 + n) for n in (1, 2)
    ]
    near = read(ifinfmsg, rtnetlink.veth(*ends))
    info = near.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "veth"
    far = info.get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    for n, end in enumerate((near, far), 1):
        names = ("IFLA_IFNAME", "IFLA_ADDRESS", "IFLA_MTU", "IFLA_NET_NS_FD")
        names += ("IFLA_NUM_TX_QUEUES", "IFLA_NUM_RX_QUEUES")
        assert end["index"] == 100 + n
        assert [end.get_attr(name) for name in names] == [
            f"eth{n}", f"02:53:00:00:00:0{n}", 1500, 7 + n, 1, 1
        ]  # fmt: skip


@pytest.mark.parametrize("text", ["10.0.0.1", "fd53::1"])
def test_pyroute2_reads_addresses_neighbours_routes_and_rules(text):
    ip = ipaddress.ip_address(text)
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    address = read(ifaddrmsg, rtnetlink.address(5, ip))
    assert (address["family"], address["prefixlen"], address["index"]) == (
        family, ip.max_prefixlen, 5
    )  # fmt: skip
    assert {address.get_attr(name) for name in ("IFA_LOCAL", "IFA_ADDRESS")} == {text}
    neighbour = read(ndmsg, rtnetlink.neighbour(5, ip, "02:53:00:00:00:01"))
    assert (neighbour["ifindex"], neighbour["state"]) == (5, 0x80)  # NUD_PERMANENT
    assert neighbour.get_attr("NDA_DST") == text
    assert neighbour.get_attr("NDA_LLADDR") == "02:53:00:00:00:01"
    way = rtnetlink.Way(5, ip, ip)
    route = read(rtmsg, rtnetlink.route(way, (ip, 16), table=100))
    assert (route["family"], route["dst_len"], route["table"]) == (family, 16, 100)
    names = ("RTA_DST", "RTA_GATEWAY", "RTA_PREFSRC", "RTA_OIF")
    assert [route.get_attr(name) for name in names] == [text, text, text, 5]
    rule = read(fibmsg, rtnetlink.rule(ip, 100))
    assert (rule["family"], rule["src_len"], rule["table"]) == (family, ip.max_prefixlen, 100)
    assert (rule["action"], rule.get_attr("FRA_SRC")) == (1, text)  # FR_ACT_TO_TBL


def test_pyroute2_reads_a_bridge_and_its_ports():
    bridge = read(ifinfmsg, rtnetlink.bridge(50, "lab-br%d"))
    info = bridge.get_attr("IFLA_LINKINFO")
    assert info.get_attr("IFLA_INFO_KIND") == "bridge"
    data = info.get_attr("IFLA_INFO_DATA")
    assert data.get_attr("IFLA_BR_FORWARD_DELAY") == 0
    assert data.get_attr("IFLA_BR_MCAST_SNOOPING") == 0
    assert read(ifinfmsg, rtnetlink.enslave(51, 50)).get_attr("IFLA_MASTER") == 50
    gone = read(ifinfmsg, rtnetlink.no_link(51))
    assert (gone["header"]["type"], gone["index"]) == (17, 51)  # RTM_DELLINK
