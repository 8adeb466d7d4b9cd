// SPDX-License-Identifier: GPL-2.0-or-later
#include "output.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace softroce::monitor {

Output::Output(Descriptor fd) : fd_(std::move(fd)) {
  struct stat status {};
  checked(fstat(fd_.get(), &status), "a capture's file");
  is_file_ = S_ISREG(status.st_mode);
  const int flags = checked(fcntl(fd_.get(), F_GETFL), "a capture's file");
  if ((flags & O_ACCMODE) == O_RDONLY)
    throw std::system_error(EBADF, std::generic_category(), "a capture's file");
  if (is_file_) return;
  checked(fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK), "a capture's file");
  fcntl(fd_.get(), F_SETPIPE_SZ, kPipeBytes);  // else it stays as it is
}

int Output::flush() noexcept {
  while (written_ < pending_.size()) {
    const ssize_t done = write(fd_.get(), pending_.data() + written_, pending_.size() - written_);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) break;
    if (done < 0) return errno;
    written_ += static_cast<std::size_t>(done);
  }
  const std::size_t whole = pcapng::whole_blocks(pending_, written_);
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(whole));
  written_ -= whole;
  return 0;
}

std::span<const std::byte> Output::cut(std::size_t room_bytes) noexcept {
  const std::size_t room = written_ > room_bytes ? written_ - room_bytes : 0;
  staying_ = pcapng::whole_blocks(pending_, room);
  return std::span(pending_).subspan(staying_);
}

void Output::end_with(const pcapng::Buffer& last) noexcept {
  const off_t at = lseek(fd_.get(), 0, SEEK_CUR);
  if (!is_file_ || at < 0) return;
  off_t end = at - static_cast<off_t>(written_ - staying_);
  const ssize_t done = pwrite(fd_.get(), last.data(), last.size(), end);  // over what is there
  if (done == static_cast<ssize_t>(last.size())) end += done;
  [[maybe_unused]] const int cut = ftruncate(fd_.get(), end);
}

}  // namespace softroce::monitor
