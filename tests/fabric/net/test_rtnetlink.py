# SPDX-License-Identifier: GPL-2.0-or-later
import errno
import ipaddress
import os

import pytest

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


@pytest.mark.usefixtures("aside")
def test_as_many_requests_as_eight_rails_need_fit_one_datagram():
    rtnetlink.request([rtnetlink.address(LOOPBACK, ADDRESS + i) for i in range(200)])
    with pytest.raises(FileExistsError):
        rtnetlink.request([rtnetlink.address(LOOPBACK, ADDRESS + 199)])
