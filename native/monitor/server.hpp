// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../system/pauses.hpp"
#include "captures.hpp"
#include "protocol.hpp"

namespace softroce::monitor {

// The monitor of one lab: moves records, and serves DIRECTORY/monitor.sock (protocol.hpp).
class Server {
 public:
  // Throws std::system_error.
  Server(const std::string& bpffs, const std::string& directory);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Until SIGTERM or SIGINT; then all captures end, with all that the rings hold.
  void run();

 private:
  struct Client {
    Descriptor socket;
    std::unique_ptr<Sink> sink;
    bool ending = false;
  };
  struct Received {
    Request request;
    std::array<Descriptor, 2> files;  // the capture's, and the list of its links
  };

  int wait(const Descriptor& epoll, int timeout_ms);
  void drain();
  void accept_one();
  void serve(int socket);
  static bool receive(Client& from, Received& into);
  void answer(Client& client, Received& received);
  int begin(Client& client, Received& received);
  void end(Client& client);
  void end_those_that_are_over();
  void end_all();
  void release(Client& client);
  void forget(int socket);
  void say(const Client& to, Word word, int error, const std::vector<std::uint64_t>& numbers) const;
  std::vector<std::uint64_t> synced() const;
  std::vector<std::uint64_t> figures(const Sink& sink) const;

  RecordFile drops_file_;
  RingDrain drops_;
  Captures captures_;
  std::string path_;
  Descriptor signals_, listener_;
  Descriptor requests_, all_;  // sets of descriptors
  std::map<int, Client> clients_;
  Pauses pauses_;
};

}  // namespace softroce::monitor
