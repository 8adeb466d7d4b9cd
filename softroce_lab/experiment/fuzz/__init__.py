# SPDX-License-Identifier: GPL-2.0-or-later
"""Deterministic simulation testing: seeds in, failed invariants out."""
