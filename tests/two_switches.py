# SPDX-License-Identifier: GPL-2.0-or-later
"""The topology of two hosts, two switches between them: text of an experiment, for tests."""

TOPOLOGY = """\
topology:
  nodes: {h1: {kind: host}, s1: {kind: switch}, s2: {kind: switch}, h2: {kind: host}}
  links:
    - {endpoints: ["h1:eth1", "s1:h1"], rate: 10Gbit, delay: 2us}
    - {endpoints: ["s1:s2", "s2:s1"], rate: 10Gbit, delay: 2us}
    - {endpoints: ["s2:h2", "h2:eth1"], rate: 10Gbit, delay: 2us}
"""
