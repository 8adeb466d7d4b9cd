# SPDX-License-Identifier: GPL-2.0-or-later
"""perftest's tests and the ibv pingpongs between two RNICs of a lab."""
