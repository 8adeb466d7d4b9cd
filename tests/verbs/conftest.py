# SPDX-License-Identifier: GPL-2.0-or-later
"""Two RNICs on an imagined cable, and their verbs."""

import pytest

from softroce_lab import _native
from softroce_lab.transports import registry
from softroce_lab.verbs import PD, Context

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
