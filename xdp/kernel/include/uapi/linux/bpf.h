/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bcc brings its own. */
