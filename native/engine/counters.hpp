// SPDX-License-Identifier: GPL-2.0-or-later
// Every packet that the RNIC sends, takes or refuses is counted under one of these names.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce {

// clang-format off
#define SOFTROCE_COUNTERS(X)                                                                   \
  X(tx_data)               /* packets of striped messages, resent ones included */             \
  X(tx_resent)             /* of them, those sent before */                                    \
  X(tx_control)            /* messages of the recovery policy */                               \
  X(tx_report)             /* receiver reports */                                              \
  X(tx_ud)                 /* ordinary UD SENDs */                                             \
  X(tx_link_down)          /* packets of any kind, lost because the port was down */           \
  X(rx_data)               /* valid packets of striped messages */                             \
  X(rx_placed)             /* of them, those whose payload was placed */                       \
  X(rx_control)            /* control messages handed to the policy */                         \
  X(rx_report)             /* valid receiver reports */                                        \
  X(rx_ud)                 /* ordinary UD SENDs delivered */                                   \
  X(rx_ce)                 /* packets to us that a queue marked: ECN field 11, RFC 3168 */     \
  X(rx_truncated)          /* shorter than its headers say */                                  \
  X(rx_not_roce)           /* not UDP to port 4791, straight over IPv4 or IPv6 */              \
  X(rx_wrong_icrc)         /* IBA 7.8.1 */                                                     \
  X(rx_bad_opcode)         /* not a UD opcode */                                               \
  X(rx_wrong_pkey)         /* IBA 9.6.1.1.3 */                                                 \
  X(rx_not_ours)           /* destination address of another host */                           \
  X(rx_unknown_qp)         /* IBA 9.6.1.1.1 */                                                 \
  X(rx_qp_not_ready)       /* the QP's state takes nothing, IBA 9.6.1.1.1 */                   \
  X(rx_wrong_qkey)         /* IBA 9.6.1.4 */                                                   \
  X(rx_unknown_peer)       /* source address or QP nobody connected */                         \
  X(rx_bad_header)         /* our header: version, kind, flags or path */                      \
  X(rx_bad_count)          /* packet count does not fit the length */                          \
  X(rx_bad_index)          /* packet index outside the message */                              \
  X(rx_trimmed)            /* a queue on the way cut the payload off */                        \
  X(rx_bad_length)         /* payload is not what the index calls for */                       \
  X(rx_inconsistent)       /* contradicts the packet that opened the message */                \
  X(rx_message_too_long)   /* larger than the posted receive */                                \
  X(rx_no_recv)            /* no receive posted, answered like RNR */                          \
  X(rx_stale_generation)   /* a late packet of an earlier use of the id */                     \
  X(rx_duplicate)          /* its bit was set already */                                       \
  X(rx_slot_busy)          /* a new generation while the old one is incomplete */              \
  X(rx_bad_report)         /* a report that contradicts what was sent */                       \
  X(rx_bad_control)        /* a control message that the policy refused */                     \
  X(rx_event_overflow)     /* the policy lags: a control message was dropped */                \
  X(rx_ud_no_recv)         /* UD SEND without a posted receive, IBA 9.8.3 */                   \
  X(rx_ud_bad_recv)        /* the posted receive names memory that it may not use */           \
  X(rx_ud_too_long)        /* UD SEND larger than the posted receive */                        \
  X(stale_action)          /* an action named a message that is gone */                        \
  X(window_forgiven)       /* nothing was heard: packets in flight counted as lost */
// clang-format on

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

class Counters {
 public:
  void add(Counter which, std::uint64_t amount = 1) {
    values_[static_cast<std::size_t>(which)] += amount;
  }
  std::uint64_t operator[](Counter which) const { return values_[static_cast<std::size_t>(which)]; }

 private:
  std::array<std::uint64_t, static_cast<std::size_t>(Counter::count_)> values_{};
};

}  // namespace softroce
