/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Included by bcc, needed by nothing here. */
