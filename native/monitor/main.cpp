// SPDX-License-Identifier: GPL-2.0-or-later
// softroce-monitor BPFFS DIRECTORY
//
// Drains the ring buffers pinned in BPFFS as `drops` and `captures` into DIRECTORY/drops.bin and
// DIRECTORY/capture.bin (layouts: xdp/lab_records.h) until SIGTERM or SIGINT, and once more then.
//
// DIRECTORY/monitor.sock is a stream socket: whoever connects is sent, after everything that the
// rings held at that moment is in the files, four 64-bit numbers in native order: the sizes of
// drops.bin and of capture.bin, and how many records of each found no room there since the start.
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>

#include "record_file.hpp"
#include "ring_drain.hpp"

namespace {

using softroce::monitor::RecordFile;
using softroce::monitor::RingDrain;

// How long records may gather before they are moved. A ring wakes us only when we had caught up
// with it, so this also bounds what waking us costs those who send packets.
constexpr int kGatherMs = 10;

int checked(int result, const char* what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  checked(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

// The descriptor that is ready, or -1 after `timeout_ms`; -1 waits for ever.
int wait_for(int epoll, int timeout_ms) {
  epoll_event event{};
  const int ready = epoll_wait(epoll, &event, 1, timeout_ms);
  if (ready < 0 && errno != EINTR) checked(ready, "epoll_wait");
  return ready > 0 ? event.data.fd : -1;
}

int open_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGINT);
  checked(sigprocmask(SIG_BLOCK, &wanted, nullptr), "sigprocmask");
  return checked(signalfd(-1, &wanted, SFD_CLOEXEC), "signalfd");
}

int open_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    throw std::system_error(ENAMETOOLONG, std::generic_category(), path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  std::filesystem::remove(path);
  const int fd = checked(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), "socket");
  checked(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), path.c_str());
  checked(listen(fd, 16), path.c_str());
  return fd;
}

class Monitor {
 public:
  Monitor(const std::string& bpffs, const std::string& directory)
      : drops_(bpffs + "/drops",
               RecordFile(directory + "/drops.bin", LAB_DROPS_MAGIC, sizeof(lab_drop))),
        captures_(bpffs + "/captures",
                  RecordFile(directory + "/capture.bin", LAB_CAPTURE_MAGIC, sizeof(lab_capture))),
        socket_path_(directory + "/monitor.sock"),
        signals_(open_signals()),
        socket_(open_socket(socket_path_)) {
    // Records wake the outer set only; while they gather, requests and signals alone matter.
    watch(requests_, signals_);
    watch(requests_, socket_);
    watch(all_, requests_);
    watch(all_, drops_.epoll_fd());
    watch(all_, captures_.epoll_fd());
  }

  ~Monitor() {
    for (const int fd : {all_, requests_, socket_, signals_}) close(fd);
  }

  void run() {
    while (true) {
      wait_for(all_, -1);
      const int request = wait_for(requests_, kGatherMs);
      if (request == socket_)
        answer();
      else
        drain();
      if (request == signals_) break;
    }
    std::filesystem::remove(socket_path_);
  }

 private:
  void drain() {
    drops_.drain();
    captures_.drain();
  }

  void answer() {
    const int peer = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) return;  // it went away again
    drain();
    const std::array<std::uint64_t, 4> figures{drops_.file().size(), captures_.file().size(),
                                               drops_.file().lost(), captures_.file().lost()};
    send(peer, figures.data(), sizeof(figures), MSG_NOSIGNAL);
    close(peer);
  }

  RingDrain drops_;
  RingDrain captures_;
  std::string socket_path_;
  int signals_;
  int socket_;
  int requests_ = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  int all_ = checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: softroce-monitor BPFFS DIRECTORY\n");
    return 2;
  }
  try {
    Monitor(argv[1], argv[2]).run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "softroce-monitor: %s\n", error.what());
    return 1;
  }
  return 0;
}
