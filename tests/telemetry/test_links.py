# SPDX-License-Identifier: GPL-2.0-or-later
"""The names in links.json are what its readers go by."""

import dataclasses
import json

from softroce_lab.telemetry.links import LinkFigures, PortFigures


def test_a_link_as_a_document():
    link = LinkFigures(5, "leaf1->spine1", 100, 7, 90, 10, 1)
    assert json.loads(json.dumps(dataclasses.asdict(link))) == {
        "directed_link": 5,
        "name": "leaf1->spine1",
        "sent": 100,
        "injected_drops": 7,
        "received": 90,
        "emulator_drops": 10,
        "records_lost": 1,
        "wire": None,
    }


def test_a_port_as_a_document():
    port = PortFigures("h1", handed=9, taken=7, emulator_drops=2)
    assert dataclasses.asdict(port) == {"node": "h1", "handed": 9, "taken": 7, "emulator_drops": 2}
