/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The lab's own header: the first bytes of the UD payload of every packet of a striped message.
 * Shared by the XDP programs (C, compiled by bcc) and the native engine (C++).
 *
 *   Ethernet | IPv4 | UDP (dport 4791) | BTH (UD SEND-only) | DETH | struct lab_hdr | data | ICRC
 *
 * All fields are big-endian. Together with its data it never exceeds the path MTU (IBA 9.8.2).
 * Packets of data and parity that belong to an operation of a reliable connection have
 * LAB_OPERATION_VERSION, and behind the header a struct lab_operation; all others LAB_HDR_VERSION.
 */
#ifndef SOFTROCE_LAB_WIRE_H
#define SOFTROCE_LAB_WIRE_H

#define LAB_ROCE_UDP_PORT 4791           /* IBA annex A17 */
#define LAB_UDP_SPORT_BASE 0xC000        /* source port = base + path */
#define LAB_BTH_OPCODE_UD_SEND_ONLY 0x64 /* IBA 9.2.1 */

#define LAB_HDR_VERSION 3
#define LAB_OPERATION_VERSION 4
#define LAB_HDR_BYTES 40
#define LAB_OPERATION_BYTES 24

enum lab_kind {
  LAB_KIND_DATA = 0,    /* a packet of a striped message */
  LAB_KIND_CONTROL = 1, /* a recovery policy's message: NACK, response, ACK, keepalive; a report */
                        /* may follow its body */
  LAB_KIND_REPORT = 2,  /* the engine's receiver report: counts per path, credit, echoed stamp */
  LAB_KIND_PROBE = 3,  /* the next number of a path, without data; message_id: the oldest message */
                       /* without an acknowledgement; body: native/engine/striped/probe.hpp */
  LAB_KIND_PARITY = 4, /* parity of a striped message; index: behind those of the data */
};

#define LAB_CONTROL_POLICY 0 /* message_id of a control message: the recovery policy reads it, */
#define LAB_CONTROL_CLEAR 1  /* or the engine: messages are cleared */
#define LAB_CONTROL_NACK 2   /* or what is missing (native/engine/striped/nack.hpp), */
#define LAB_CONTROL_HELLO 3  /* or who speaks which transport (native/engine/rnic/greeter.hpp) */

#define LAB_HDR_TRIMMED 8 /* cut on its way, the data are gone; the rest is as it was */
#define LAB_HDR_KIND 7    /* bits of enum lab_kind beside it */

/* Of trimmed packets, so that queues recognise them: of RFC 2474's pool for local use. */
#define LAB_TRIM_DSCP 47
#define LAB_TRIM_LAST_DSCP 43 /* the link that trimmed it leads to its destination */

#define LAB_COUNT_BITS 24 /* of the packets of data in a message; the code lies above */
#define LAB_COUNT_MASK 0xffffff

#define LAB_NUMBER_BITS 24 /* of a path's sequence number; the connection epoch lies above */
#define LAB_NUMBER_MASK 0xffffff

struct lab_hdr {
  unsigned char version_kind; /* LAB_HDR_VERSION << 4 | LAB_HDR_TRIMMED or 0 | enum lab_kind */
  unsigned char path;         /* index of the path, source port less LAB_UDP_SPORT_BASE */
  unsigned short attempt;     /* how often this packet was sent before: 0 the first time */
  unsigned short operation;   /* collective operation that the workload names */
  unsigned short step;        /* step of that operation */
  unsigned int message;       /* message of that step; control and reports: their sequence number */
  unsigned int message_id;    /* sender's slot and generation of a message to this peer */
  unsigned int index;         /* packet index in the message */
  unsigned int code_count; /* code << LAB_COUNT_BITS | packets of data, at least 1. code: 0 none; */
                           /* of csa_ud's parity the last packets of data that it covers, */
                           /* else 1 + place in the run's list of codes */
  unsigned int length;     /* bytes in the message; control and reports: bytes of the body */
  unsigned int stamp_ns;   /* sender's clock, modulo 2^32 ns; reports echo it */
  unsigned int epoch_number; /* connection epoch << LAB_NUMBER_BITS | number on this path */
  unsigned short srtt;       /* lab_time_code() of the sender's smoothed RTT to this peer, in ns */
  unsigned short rttvar;     /* likewise of its mean deviation (RFC 6298); 0 unknown */
};

/*
 * An operation of a reliable connection that goes as striped messages: its request, and the result
 * that a READ or an atomic returns. Its lab_hdr says besides
 *   operation   enum lab_operation_class << 8 | bits 16 to 23 of the number of the queue pair that
 *               the message is for
 *   step        bits 0 to 15 of that number
 *   message     number of the operation at its requester's queue pair, from 0
 * Atomics carry 16 bytes: what to compare with, or 0, and what to store or to add. Their result has
 * 8, the value before. Receives of a queue pair have numbers from 0 (the SSN of IRN: Mittal et al.,
 * SIGCOMM 2018, section 5). READs and atomics tell how many of these are outstanding, with the one
 * that tells. The first PSN tells a queue pair that was connected again from the one before.
 */
enum lab_operation_class {
  LAB_CLASS_REQUEST = 1,
  LAB_CLASS_RESULT = 2, /* has the verb of its request */
};

enum lab_verb {
  LAB_VERB_NONE = 0,
  LAB_VERB_WRITE = 1,
  LAB_VERB_WRITE_WITH_IMMEDIATE = 2,
  LAB_VERB_SEND = 3,
  LAB_VERB_SEND_WITH_IMMEDIATE = 4,
  LAB_VERB_SEND_WITH_INVALIDATE = 5,
  LAB_VERB_READ = 6,
  LAB_VERB_COMPARE_SWAP = 7,
  LAB_VERB_FETCH_ADD = 8,
};

#define LAB_VERB_SOLICITED 0x80 /* beside enum lab_verb: a solicited event */

struct lab_operation {
  unsigned int verb_receive; /* verb << 24 | number of the receive that it takes, or of READs and */
                             /* atomics that are outstanding */
  unsigned int connection;   /* the requester's first PSN */
  unsigned long long remote_address; /* of the message's first byte; with `rkey` of WRITEs, */
  unsigned int rkey;                 /* READs and atomics */
  unsigned int argument;             /* immediate, key to invalidate, or bytes to read */
};

/*
 * Times in 16 bits: 5 bits of exponent e above 11 bits of mantissa m stand for m * 2^e ns. The
 * smallest exponent is taken that the mantissa has room for; it loses less than one part in 1024.
 */
#define LAB_TIME_MANTISSA_BITS 11

static inline unsigned short lab_time_code(unsigned int ns) {
  const int width = ns ? 32 - __builtin_clz(ns) : 0;
  const int exponent = width > LAB_TIME_MANTISSA_BITS ? width - LAB_TIME_MANTISSA_BITS : 0;

  return (unsigned short)(exponent << LAB_TIME_MANTISSA_BITS | ns >> exponent);
}

/* An exponent beyond 21 is none that lab_time_code() makes: the bits above 32 are lost. */
static inline unsigned int lab_time_ns(unsigned short code) {
  return (unsigned int)(code & ((1 << LAB_TIME_MANTISSA_BITS) - 1))
         << (code >> LAB_TIME_MANTISSA_BITS);
}

#endif
