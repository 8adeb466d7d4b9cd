// SPDX-License-Identifier: GPL-2.0-or-later
// Every packet that the RNIC sends, takes or refuses is counted under one of these names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce {

// clang-format off
// What a queue pair counts, for itself and for its RNIC.
#define SOFTROCE_QP_COUNTERS(X)                                                                \
  X(tx_ud)                 /* ordinary UD SENDs */                                             \
  X(tx_connected)          /* packets of RC and UC, retransmitted ones included */             \
  X(tx_connected_retransmitted)   /* of them, those of RC requests with a PSN that was sent before */\
  X(tx_payload_bytes)      /* data bytes of all these */                                       \
  X(tx_ack)                /* responder: acknowledgements sent, no NAKs */                     \
  X(rx_ud)                 /* ordinary UD SENDs delivered */                                   \
  X(rx_connected)          /* packets of RC and UC that their QP took */                       \
  X(rx_payload_bytes)      /* data bytes of all these */                                       \
  X(rx_ack)                /* requester: acknowledgements of what is outstanding, no NAKs */   \
  X(rx_uc_dropped)         /* UC packets of a message that lost one, IBA 9.8.2.2 */            \
  X(rx_ghost)              /* RC responses to nothing that is outstanding */                   \
  X(rx_bad_response)       /* RC responses that contradict their request */                    \
  X(packet_seq_err)        /* requester: NAK sequence error came */                            \
  X(implied_nak_seq_err)   /* requester: a READ or atomic response is missing */               \
  X(local_ack_timeout_err) /* requester: the timer of a QP ran out */                          \
  X(rnr_nak_retry_err)     /* requester: RNR NAK came */                                       \
  X(req_went_back)         /* requester: began again at a PSN, for whatever reason but RNR */  \
  X(out_of_sequence)       /* responder: a PSN beyond the one expected */                      \
  X(duplicate_request)     /* responder: a PSN before the one expected */                      \
  X(tx_nak_sequence)       /* responder: NAKs sent, by code */                                 \
  X(tx_nak_invalid)                                                                            \
  X(tx_nak_access)                                                                             \
  X(tx_nak_operation)                                                                          \
  X(tx_rnr_nak)                                                                                \
  X(rx_write_requests)     /* responder: RDMA WRITEs begun */                                  \
  X(rx_read_requests)                                                                          \
  X(rx_atomic_requests)                                                                        \
  X(sends_completed)       /* SENDs, with immediate or invalidate too, that ended in success */\
  X(receives_completed)    /* receives that ended in success */                                \
  X(req_cqe_error)         /* requests that ended in error, flushed ones included */           \
  X(req_cqe_flush_error)   /* of them, the flushed ones */                                     \
  X(req_remote_invalid_request)     /* of them, by the NAK that ended them */                  \
  X(req_remote_access_errors)                                                                  \
  X(req_remote_operation_errors)                                                               \
  X(req_transport_retries_exceeded) /* of them, by the retries that were used up */            \
  X(req_rnr_retries_exceeded)                                                                  \
  X(resp_cqe_error)        /* receives that ended in error, flushed ones included */           \
  X(resp_cqe_flush_error)  /* of them, the flushed ones */                                     \
  X(resp_local_length_error)        /* of them, those that were too short */                   \
  X(rx_bad_opcode)         /* no such opcode, or not one that the queue pair takes */          \
  X(rx_qp_not_ready)       /* the QP's state takes nothing, IBA 9.6.1.1.1 */                   \
  X(rx_wrong_qkey)         /* IBA 9.6.1.4 */                                                   \
  X(rx_unknown_peer)       /* unknown source address or QP */                                  \
  X(rx_bad_length)         /* payload is not what the index calls for */                       \
  X(rx_ud_no_recv)         /* UD SEND without a posted receive, IBA 9.8.3 */                   \
  X(rx_ud_bad_recv)        /* the posted receive names memory that it may not use */           \
  X(rx_ud_too_long)        /* UD SEND larger than the posted receive */
// What only the RNIC counts.
#define SOFTROCE_RNIC_COUNTERS(X)                                                              \
  X(tx_data)               /* packets of striped messages, retransmitted ones included */      \
  X(tx_retransmitted)             /* of them, those sent before */                             \
  X(tx_parity)             /* of them, those of the parity of coded messages */                \
  X(tx_control)            /* control messages of the session */                               \
  X(tx_nack)               /* of them, the engine's NACKs */                                   \
  X(tx_probe)              /* path probes */                                                   \
  X(tx_path_moved)         /* a path was given another source port */                          \
  X(tx_report)             /* receiver reports */                                              \
  X(tx_name_waits)         /* waits until no packet is on its way that names a message's id */  \
  X(tx_clear)              /* control messages of the engine: messages cleared to be sent */   \
  X(tx_control_bytes)      /* bytes of control messages, reports and probes, their headers too */ \
  X(tx_link_down)          /* packets of any kind, lost because the port was down */           \
  X(rx_data)               /* valid packets of striped messages */                             \
  X(rx_placed)             /* of them, those whose payload was placed */                       \
  X(rx_restored)           /* packets of data that an erasure code restored */                 \
  X(rx_name_waits)         /* the same, of a slot and generation of uc_immediate */            \
  X(rx_late_parity)        /* packets of parity of a message that was complete */              \
  X(rx_control)            /* control messages for the session */                              \
  X(rx_nack)               /* valid NACKs handled by the engine */                             \
  X(rx_probe)              /* valid path probes */                                             \
  X(rx_late_number)        /* numbers of a path that came after they were given up */          \
  X(rx_number_jump)        /* numbers of a path further ahead than four windows */             \
  X(rx_report)             /* valid receiver reports */                                        \
  X(rx_clear)              /* valid clearances of messages */                                  \
  X(rx_ce)                 /* packets to us that a queue marked: ECN field 11, RFC 3168 */     \
  X(tx_cnp)                /* congestion notification packets, IBA annex A17.9 */              \
  X(rx_cnp)                /* the same, received */                                            \
  X(rx_cnp_ignored)        /* of them, those that slowed no flow: unknown, or not limited */   \
  X(rx_truncated)          /* shorter than its headers declare */                              \
  X(rx_not_roce)           /* not UDP to port 4791, straight over IPv4 or IPv6 */              \
  X(rx_wrong_icrc)         /* IBA 7.8.1 */                                                     \
  X(rx_bad_payload)        /* with an opcode that carries none, or not whole words with pads */\
  X(rx_wrong_pkey)         /* IBA 9.6.1.1.3 */                                                 \
  X(rx_not_ours)           /* destination address of another host */                           \
  X(rx_unknown_qp)         /* IBA 9.6.1.1.1 */                                                 \
  X(rx_bad_header)         /* lab header: version, kind or path */                             \
  X(rx_wrong_epoch)        /* lab header: of an earlier connection */                          \
  X(rx_wrong_root_key)     /* a WRITE to a channel with another key than that of its peer */   \
  X(rx_wrong_address)      /* one whose address is not that of its immediate's slot and packet */\
  X(rx_bad_clear)          /* a clearance that is none, or of other generations or slots */    \
  X(rx_bad_count)          /* packet count does not fit the length */                          \
  X(rx_bad_index)          /* packet index outside the message */                              \
  X(rx_trimmed)            /* a queue on the way cut the payload off */                        \
  X(rx_inconsistent)       /* contradicts the packet that opened the message */                \
  X(rx_message_too_long)   /* larger than the posted receive */                                \
  X(rx_no_recv)            /* no receive posted, response as RNR */                            \
  X(rx_stale_generation)   /* a late packet of an earlier use of the id */                     \
  X(rx_duplicate)          /* its bit was set already */                                       \
  X(rx_slot_busy)          /* a new generation while the old one is incomplete */              \
  X(rx_bad_report)         /* a report that contradicts what was sent */                       \
  X(rx_bad_control)        /* a control message that the session refused */                    \
  X(rx_event_overflow)     /* the session lags: a control message was dropped */               \
  X(stale_action)          /* an action named a message that is gone */                        \
  X(window_forgiven)       /* nothing was received: packets in flight counted as lost */
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
