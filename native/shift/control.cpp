// SPDX-License-Identifier: GPL-2.0-or-later
#include "control.hpp"

#include <cerrno>
#include <span>
#include <system_error>
#include <utility>

#include "../engine/mutant.hpp"

namespace softroce::shift {
namespace {

constexpr std::uint8_t kRetries = 7, kForEver = 7;
constexpr std::uint8_t kRnrTimer = 12;  // 0.64 ms

constexpr std::uint32_t kToInit = kAttrState | kAttrPkeyIndex | kAttrPort | kAttrAccess;
constexpr std::uint32_t kToRtr = kAttrState | kAttrAddress | kAttrPathMtu | kAttrDestQpn |
                                 kAttrRqPsn | kAttrMaxDestReads | kAttrMinRnrTimer;
constexpr std::uint32_t kToRts =
    kAttrState | kAttrSqPsn | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxReads;

}  // namespace

void bring_to_rts(Nic& nic, std::uint32_t qp, const QpAttr& attr) {
  const int error = nic.ask([qp, attr](Rnic& rnic, Time now) {
    QpAttr next = attr;
    for (const auto& [state, mask] :
         {std::pair{QpState::init, kToInit}, std::pair{QpState::rtr, kToRtr},
          std::pair{QpState::rts, kToRts}}) {
      next.state = state;
      if (const int refused = rnic.modify_qp(qp, next, mask, now)) return refused;
    }
    return 0;
  });
  if (error != 0) throw std::system_error(error, std::generic_category(), "connect a backup");
}

Control::Control(Nic& nic, std::uint32_t protection_domain, std::shared_ptr<CompletionQueue> queue,
                 std::uint32_t psn, const Owner& owner)
    : nic_(nic), owner_(owner), mailbox_(std::make_shared<Mailbox>()) {
  // Its address is in packets: one of the process would differ from run to run.
  constexpr std::uint64_t kMailboxAt = 0;
  const QpConfig config{QpType::rc,
                        protection_domain,
                        {4 * kSlots, 2 * kSlots, 1, 1, kMessageBytes},
                        queue,
                        queue,
                        nullptr,
                        true};
  const auto [error, number, key] = nic_.ask([=, at = mailbox_](Rnic& rnic, Time) {
    const std::uint32_t rkey = rnic.memory().add(at->data(), at->size(), kLocalWrite | kRemoteWrite,
                                                 protection_domain, kMailboxAt);
    QpConfig full = config;
    std::uint32_t qp = 0;
    const int refused = rnic.create_qp(full, qp);
    if (refused != 0) rnic.memory().remove(rkey);
    return std::tuple{refused, qp, rkey};
  });
  if (error != 0) throw std::system_error(error, std::generic_category(), "create a control QP");
  address_ = {number, psn, kMailboxAt, key};
}

Control::~Control() {
  try {
    nic_.ask([address = address_, kept = mailbox_](Rnic& rnic, Time) {
      rnic.destroy_qp(address.qp);
      rnic.memory().remove(address.rkey);
      return 0;
    });
  } catch (const std::system_error&) {  // an engine that does not answer does it later, or ends
  }
}

void Control::connect(const Gid& gid, const ControlAddress& peer, QpAttr attr) {
  peer_ = peer;
  attr.address = nic_.route_to(gid);
  attr.dest_qp = peer.qp;
  attr.sq_psn = address_.psn;
  attr.rq_psn = peer.psn;
  attr.access = kLocalWrite | kRemoteWrite;
  attr.retry_count = kRetries;
  attr.rnr_retry = kForEver;
  attr.min_rnr_timer = kRnrTimer;
  attr.max_rd_atomic = attr.max_dest_rd_atomic = 0;
  bring_to_rts(nic_, address_.qp, attr);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) post_receive();
  connected_ = true;
}

void Control::post_receive() {
  nic_.ask([qp = address_.qp](Rnic& rnic, Time now) { return rnic.post_receive(qp, {}, now); });
}

bool Control::tell(const Message& message) {
  if (broken_ || !connected_) return false;
  const MessageBytes bytes = encode(message, sent_, owner_);
  SendRequest request;
  request.wr_id = sent_;
  request.opcode = WrOpcode::rdma_write_with_immediate;
  request.flags = kInline | kSignaled;
  request.inline_bytes.assign(bytes.begin(), bytes.end());
  request.immediate = static_cast<std::uint32_t>(message.received);
  request.remote_address = peer_.mailbox + sent_ % kSlots * kMessageBytes;
  request.rkey = peer_.rkey;
  broken_ = nic_.ask([qp = address_.qp, request](Rnic& rnic, Time now) {
    return rnic.post_send(qp, SendRequest(request), now);
  }) != 0;
  sent_ += !broken_;
  return !broken_;
}

std::optional<Message> Control::take(const WorkCompletion& completion) {
  if (completion.status != WcStatus::success) broken_ = true;
  const bool brings_one = completion.opcode >= WcOpcode::recv;
  if (completion.status != WcStatus::success || !brings_one) return std::nullopt;
  const std::span all(*mailbox_);
  const auto found = read(all.subspan(received_ % kSlots * kMessageBytes, kMessageBytes));
  if (!found || found->sequence != received_) {
    broken_ = true;
    return std::nullopt;
  }
  if (!mutated(Mutant::shift_mailbox_stuck)) ++received_;
  post_receive();
  return found->message;
}

}  // namespace softroce::shift
