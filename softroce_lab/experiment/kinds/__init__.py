# SPDX-License-Identifier: GPL-2.0-or-later
"""Kinds of workloads: how the file writes each, and the generator that it becomes."""
