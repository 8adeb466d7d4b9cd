// SPDX-License-Identifier: GPL-2.0-or-later
// The key-value service of SHIFT for programs: files beside the counters of the lab's RNICs, which
// all hosts see. `<GID>:<queue pair>.backup` has the address of a queue pair's backup.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "../shift/protocol.hpp"
#include "../shift/surroundings.hpp"

namespace softroce::verbs {

class BackupFiles final : public shift::Directory {
 public:
  // `own`: the GIDs of the default NIC, by any of which peers may know it.
  BackupFiles(std::string folder, std::vector<Gid> own)
      : folder_(std::move(folder)), own_(std::move(own)) {}

  void publish(std::uint32_t qp, const shift::BackupAddress& backup) override;
  std::optional<shift::BackupAddress> find(const Gid& nic, std::uint32_t qp) override;
  shift::Keys region_keys(const Gid&) override { return {}; }  // a region has one key
  void withdraw(std::uint32_t qp);
  void withdraw_all();

 private:
  std::string path_of(const Gid& nic, std::uint32_t qp) const;
  void remove(std::uint32_t qp) const;

  const std::string folder_;
  const std::vector<Gid> own_;
  std::mutex lock_;
  std::set<std::uint32_t> published_;
  bool over_ = false;  // nothing is published any more
};

// The transitions of a device's queue pairs, for `lab inspect node`: a JSON document, replaced at
// each one (softroce_lab/telemetry/published_transitions.py reads it).
class TransitionsFile {
 public:
  explicit TransitionsFile(std::string path) : path_(std::move(path)) {}
  ~TransitionsFile();
  TransitionsFile(const TransitionsFile&) = delete;
  TransitionsFile& operator=(const TransitionsFile&) = delete;

  void add(const shift::Transition& transition);
  void remove() const;

 private:
  const std::string path_;
  std::deque<std::string> rows_;
  std::map<std::pair<std::uint32_t, std::string>, std::string> newest_;  // by queue pair and side
};

}  // namespace softroce::verbs
