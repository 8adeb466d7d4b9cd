# SPDX-License-Identifier: GPL-2.0-or-later
"""Gates of an experiment or a sweep: conditions that its figures have to hold."""
