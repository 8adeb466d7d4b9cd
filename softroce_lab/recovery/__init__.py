# SPDX-License-Identifier: GPL-2.0-or-later
"""Recovery policies: what to retransmit, and when to check for loss. Pure: no clock, no socket, no
chance.
"""
