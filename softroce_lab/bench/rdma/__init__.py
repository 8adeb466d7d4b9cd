# SPDX-License-Identifier: GPL-2.0-or-later
"""Benches of RC: over the lab's own verbs, and under unmodified programs."""
