// SPDX-License-Identifier: GPL-2.0-or-later
// The control connection of one end: WRITEs with immediate into the peer's mailbox, over the backup
// NIC. It has a queue pair of its own, so that its messages never wait behind the application's
// receives, and survive when the backup's data queue pair begins anew.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "protocol.hpp"
#include "surroundings.hpp"

namespace softroce::shift {

class Control {
 public:
  // Completions of the queue pair come to `queue`.
  Control(Nic& nic, std::uint32_t protection_domain, std::shared_ptr<CompletionQueue> queue,
          std::uint32_t psn, const Owner& owner);
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  std::uint32_t qp() const { return address_.qp; }
  const ControlAddress& address() const { return address_; }
  bool connected() const { return connected_; }
  bool broken() const { return broken_; }

  // To RTS; timeout and path MTU are those of `attr`.
  void connect(const Gid& gid, const ControlAddress& peer, QpAttr attr);
  // False: the connection is broken, or was never there.
  bool tell(const Message& message);
  // The message that a completion of its queue pair brings. It may break the connection.
  std::optional<Message> take(const WorkCompletion& completion);

 private:
  static constexpr std::uint32_t kSlots = 16;

  using Mailbox = std::array<std::uint8_t, kSlots * kMessageBytes>;

  void post_receive();

  Nic& nic_;
  const Owner owner_;
  std::shared_ptr<Mailbox> mailbox_;  // stays until the RNIC has forgotten it
  ControlAddress address_;
  ControlAddress peer_;
  std::uint32_t sent_ = 0, received_ = 0;
  bool connected_ = false, broken_ = false;
};

// The three steps from RESET to RTS of an RC queue pair; throws std::system_error.
void bring_to_rts(Nic& nic, std::uint32_t qp, const QpAttr& attr);

}  // namespace softroce::shift
