# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from softroce_lab.perftest.pingpong import Options


@pytest.mark.parametrize("kind", ["rc", "uc", "ud"])
def test_errors_name_what_the_user_began(kind):
    test = Options(kind).test(4096)
    assert (test.name, test.verb, test.latency) == ("pingpong", "send", True)
    assert test.service == kind.upper()
