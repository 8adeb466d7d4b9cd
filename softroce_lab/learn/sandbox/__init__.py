# SPDX-License-Identifier: GPL-2.0-or-later
"""The process that runs a submission's policy: the only part of `learn` that the policy can see."""
