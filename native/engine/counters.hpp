// SPDX-License-Identifier: GPL-2.0-or-later
// Every packet that the RNIC sends, takes or refuses is counted under one of these names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce {

// clang-format off
// The comments are the descriptions in the reference (docs/reference).
// What a queue pair counts, for itself and for its RNIC.
#define SOFTROCE_QP_COUNTERS(X) \
  X(tx_ud)                          /* ordinary UD SENDs */ \
  X(tx_connected)                   /* packets of RC and UC, retransmissions and responses included */ \
  X(tx_connected_retransmitted)     /* RC requests sent with a PSN that was sent before */ \
  X(tx_payload_bytes)               /* data bytes of `tx_ud` and `tx_connected` */ \
  X(tx_ack)                         /* responder: acknowledgements sent, no NAKs */ \
  X(rx_ud)                          /* ordinary UD SENDs delivered */ \
  X(rx_connected)                   /* packets of RC and UC that their queue pair accepted */ \
  X(rx_payload_bytes)               /* data bytes of `rx_ud` and `rx_connected` */ \
  X(rx_ack)                         /* requester: acknowledgements of what is outstanding, no NAKs */ \
  X(rx_uc_dropped)                  /* UC packets of a message that lost one, IBA 9.8.2.2 */ \
  X(rx_ghost)                       /* RC responses to nothing that is outstanding */ \
  X(rx_bad_response)                /* RC responses that contradict their request */ \
  X(packet_seq_err)                 /* requester: NAK sequence error came */ \
  X(implied_nak_seq_err)            /* requester: a READ or atomic response is missing */ \
  X(local_ack_timeout_err)          /* requester: the timer of a QP ran out */ \
  X(rnr_nak_retry_err)              /* requester: RNR NAK came */ \
  X(req_went_back)                  /* requester: began again at a PSN, for whatever reason but RNR */ \
  X(out_of_sequence)                /* responder: a PSN beyond the one expected */ \
  X(duplicate_request)              /* responder: a PSN before the one expected */ \
  X(tx_nak_sequence)                /* responder: NAKs sent for sequence errors */ \
  X(tx_nak_invalid)                 /* responder: NAKs sent for invalid requests */ \
  X(tx_nak_access)                  /* responder: NAKs sent for access errors */ \
  X(tx_nak_operation)               /* responder: NAKs sent for errors of its own */ \
  X(tx_rnr_nak)                     /* responder: RNR NAKs sent */ \
  X(rx_write_requests)              /* responder: RDMA WRITEs begun */ \
  X(rx_read_requests)               /* responder: RDMA READs executed */ \
  X(rx_atomic_requests)             /* responder: atomics executed */ \
  X(sends_completed)                /* SENDs, with immediate or invalidate too, that ended in success */ \
  X(receives_completed)             /* receives that ended in success */ \
  X(req_cqe_error)                  /* requests that ended in error, flushed ones included */ \
  X(req_cqe_flush_error)            /* requests that were flushed */ \
  X(req_remote_invalid_request)     /* requests ended by a NAK for an invalid request */ \
  X(req_remote_access_errors)       /* requests ended by a NAK for a remote access error */ \
  X(req_remote_operation_errors)    /* requests ended by a NAK for an error of the peer's own */ \
  X(req_transport_retries_exceeded) /* requests ended because retries were used up */ \
  X(req_rnr_retries_exceeded)       /* requests ended because RNR retries were used up */ \
  X(resp_cqe_error)                 /* receives that ended in error, flushed ones included */ \
  X(resp_cqe_flush_error)           /* receives that were flushed */ \
  X(resp_local_length_error)        /* receives that were too short */ \
  X(rx_bad_opcode)                  /* packets with an opcode that does not exist, or that the QP does not accept */ \
  X(rx_qp_not_ready)                /* packets to a QP whose state allows none, IBA 9.6.1.1.1 */ \
  X(rx_wrong_qkey)                  /* packets with another Q_Key, IBA 9.6.1.4 */ \
  X(rx_unknown_peer)                /* packets from a source address or a QP that is not connected */ \
  X(rx_bad_length)                  /* payload is not what its place calls for, or longer than the port's MTU */ \
  X(rx_stale_operation)             /* packets of an operation of an earlier connection, or that is over, or too far ahead */ \
  X(rx_ud_no_recv)                  /* UD SEND without a posted receive, IBA 9.8.3 */ \
  X(rx_ud_bad_recv)                 /* the posted receive names memory that it may not use */ \
  X(rx_ud_too_long)                 /* UD SEND larger than the posted receive */
// What only the RNIC counts.
#define SOFTROCE_RNIC_COUNTERS(X) \
  X(tx_data)                        /* packets of striped messages, retransmissions and parity included */ \
  X(tx_retransmitted)               /* packets of striped messages that were sent before */ \
  X(tx_parity)                      /* packets with parity of striped messages; they are in `tx_data`, too */ \
  X(tx_control)                     /* control messages of the transport */ \
  X(tx_nack)                        /* NACKs that the engine sent */ \
  X(tx_probe)                       /* path probes */ \
  X(tx_path_moved)                  /* times that a path was given another source port */ \
  X(tx_report)                      /* receiver reports */ \
  X(tx_name_waits)                  /* sends that waited until no packet with the same message id was on its way */ \
  X(tx_clear)                       /* control messages that clear a message to be sent */ \
  X(tx_control_bytes)               /* bytes of control messages, reports and probes, headers included */ \
  X(tx_link_down)                   /* packets of any kind, lost because the port was down */ \
  X(rx_data)                        /* valid packets of striped messages */ \
  X(rx_placed)                      /* packets of striped messages whose payload was placed */ \
  X(rx_restored)                    /* packets of data that were restored from parity */ \
  X(rx_name_waits)                  /* receives that waited for a slot and generation, of uc_immediate */ \
  X(rx_needless)                    /* retransmissions of packets that were restored before, the first that arrived of each */ \
  X(rx_overtaken)                   /* first transmissions that arrived when parity had restored their packets */ \
  X(rx_late_parity)                 /* packets of parity whose message was complete, or that had arrived before */ \
  X(rx_control)                     /* control messages handed to the transport */ \
  X(rx_nack)                        /* valid NACKs handled by the engine */ \
  X(rx_probe)                       /* valid path probes */ \
  X(rx_late_number)                 /* numbers of a path that came after they were given up: reordering */ \
  X(rx_number_jump)                 /* numbers of a path further ahead than four windows */ \
  X(rx_report)                      /* valid receiver reports */ \
  X(rx_clear)                       /* valid clearances of messages */ \
  X(rx_ce)                          /* packets to us that a queue marked: ECN field 11, RFC 3168 */ \
  X(tx_cnp)                         /* congestion notification packets sent, IBA annex A17.9 */ \
  X(rx_cnp)                         /* congestion notification packets received */ \
  X(rx_cnp_ignored)                 /* CNPs without effect: for no flow, or for a flow without `dcqcn` */ \
  X(rx_truncated)                   /* packets shorter than the lengths in their headers */ \
  X(rx_not_roce)                    /* packets that are not UDP to port 4791, straight over IPv4 or IPv6 */ \
  X(rx_wrong_icrc)                  /* packets with a wrong ICRC, IBA 7.8.1 */ \
  X(rx_bad_payload)                 /* packets whose opcode carries none, or of not whole words with pads */ \
  X(rx_wrong_pkey)                  /* packets of another partition, IBA 9.6.1.1.3 */ \
  X(rx_not_ours)                    /* packets to another host's address */ \
  X(rx_unknown_qp)                  /* packets to a queue pair that does not exist, IBA 9.6.1.1.1 */ \
  X(rx_bad_header)                  /* packets whose lab header has a wrong version, kind or path */ \
  X(rx_wrong_epoch)                 /* packets whose lab header is of an earlier connection */ \
  X(rx_wrong_root_key)              /* WRITEs to a channel with another key than that of its peer */ \
  X(rx_wrong_address)               /* WRITEs whose address is not that of their immediate's slot and packet */ \
  X(rx_bad_clear)                   /* a malformed clearance, or one of other generations or slots */ \
  X(rx_bad_count)                   /* packets whose packet count does not fit the message's length */ \
  X(rx_bad_index)                   /* packets whose index is outside the message */ \
  X(rx_trimmed)                     /* packets whose payload a queue on the way cut off */ \
  X(rx_inconsistent)                /* packets that contradict the packet that opened the message */ \
  X(rx_message_too_long)            /* packets of messages larger than the posted receive */ \
  X(rx_no_recv)                     /* packets that found no receive posted; handled like RNR */ \
  X(rx_stale_generation)            /* late packets of an earlier use of the message id */ \
  X(rx_duplicate)                   /* packets that had arrived before */ \
  X(rx_out_of_order)                /* packets that a transport takes in order only, and dropped */ \
  X(rx_slot_busy)                   /* packets of a new generation while the old one is incomplete */ \
  X(rx_bad_report)                  /* reports that contradict what was sent */ \
  X(rx_bad_control)                 /* control messages that the transport refused */ \
  X(rx_event_overflow)              /* control messages dropped because the transport lags behind */ \
  X(stale_action)                   /* actions that named a message that is gone */ \
  X(window_forgiven)                /* times that nothing arrived from the peer: packets in flight counted as lost */
// clang-format on

// Those of queue pairs come first.
#define SOFTROCE_COUNTERS(X) SOFTROCE_QP_COUNTERS(X) SOFTROCE_RNIC_COUNTERS(X)

enum class Counter : std::uint8_t {
#define SOFTROCE_ENUM(name) name,
  SOFTROCE_COUNTERS(SOFTROCE_ENUM)
#undef SOFTROCE_ENUM
      count_
};

inline constexpr std::array<const char*, static_cast<std::size_t>(Counter::count_)> kCounterNames =
    {
#define SOFTROCE_NAME(name) #name,
        SOFTROCE_COUNTERS(SOFTROCE_NAME)
#undef SOFTROCE_NAME
};

#define SOFTROCE_ONE(name) +1
inline constexpr std::size_t kQpCounters = 0 SOFTROCE_QP_COUNTERS(SOFTROCE_ONE);
#undef SOFTROCE_ONE

// The first `kinds` of all.
template <std::size_t kinds>
class CounterSet {
 public:
  void add(Counter which, std::uint64_t amount = 1) {
    values_[static_cast<std::size_t>(which)] += amount;
  }
  std::uint64_t operator[](Counter which) const { return values_[static_cast<std::size_t>(which)]; }
  const std::array<std::uint64_t, kinds>& values() const { return values_; }

 private:
  std::array<std::uint64_t, kinds> values_{};
};

using Counters = CounterSet<static_cast<std::size_t>(Counter::count_)>;
using QpCounters = CounterSet<kQpCounters>;

}  // namespace softroce
