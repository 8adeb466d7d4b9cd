# SPDX-License-Identifier: GPL-2.0-or-later
"""Checkers: pure functions from a capture to verdicts, with the packets that prove them."""
