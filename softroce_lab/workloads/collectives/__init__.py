# SPDX-License-Identifier: GPL-2.0-or-later
"""Collectives by named algorithm: who sends which part of the vector to whom, and in which step."""
