# SPDX-License-Identifier: GPL-2.0-or-later
from softroce_lab.fabric.bpf.layout import PortCounters
from softroce_lab.fabric.observe import stats
from softroce_lab.fabric.observe.traffic import LinkCounts

FREE = LinkCounts(**dict.fromkeys(LinkCounts._fields, 0))


def counted(**counts):
    return PortCounters(**{name: counts.get(name, 0) for name in PortCounters._fields})


def test_a_switch_sent_what_it_forwarded_answered_and_asked():
    """As many frames as arrive at the far end; its probe, answered there, is one of them."""
    here = counted(tx_packets=1900, tx_bytes=533_000, answered=1, rx_packets=1902, rx_bytes=8)
    there = counted(rx_packets=1902, answered=1)
    port = stats._port(here, *stats._sent_by_switch(here, there, None), FREE)
    assert port["port_xmit_packets"] == there.rx_packets
    assert port["port_xmit_data"] == 533_000 // 4
    assert (port["port_rcv_packets"], port["port_rcv_data"]) == (1902, 2)
