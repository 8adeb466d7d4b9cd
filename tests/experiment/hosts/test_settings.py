# SPDX-License-Identifier: GPL-2.0-or-later
"""What a host process is told survives the pipe to it."""

import pytest

from softroce_lab.errors import UserError
from softroce_lab.plan.path_mtu import path_mtu_bytes


@pytest.mark.parametrize(
    ("netdev", "path"),
    [
        (308, 256),
        (576, 512),
        (1500, 1024),
        (2099, 1024),
        (2100, 2048),
        (4147, 2048),
        (4148, 4096),
        (9000, 4096),
    ],
)
def test_the_path_mtu_fits_into_the_links(netdev, path):
    assert path_mtu_bytes(netdev, 4) == path
    assert path_mtu_bytes(netdev + 20, 6) == path  # the IPv6 header is longer


@pytest.mark.parametrize(("netdev", "ip_version"), [(307, 4), (327, 6)])
def test_links_that_are_too_narrow_for_rdma(netdev, ip_version):
    with pytest.raises(UserError, match=f"MTU of {netdev} bytes") as refusal:
        path_mtu_bytes(netdev, ip_version)
    assert refusal.value.hint == f"at least {netdev + 1}"
