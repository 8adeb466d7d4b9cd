# SPDX-License-Identifier: GPL-2.0-or-later
"""Which losses cost a run its time: counterfactual runs on the virtual clock."""
