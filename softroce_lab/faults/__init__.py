# SPDX-License-Identifier: GPL-2.0-or-later
"""Faults: rules in tc-netem's words, and the directed links and hash streams they come to."""
