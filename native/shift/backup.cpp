// SPDX-License-Identifier: GPL-2.0-or-later
#include "backup.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

namespace softroce::shift {
namespace {

constexpr std::size_t kAll = CompletionQueue::kUnbounded;

std::shared_ptr<CompletionQueue> make_queue(Nic& nic, const std::function<void()>& ring) {
  auto queue = nic.ask([](Rnic& rnic, Time) { return rnic.create_cq(); });
  queue->on_event(ring);
  return queue;
}

// What one queue pair cannot do ends that one.
template <typename F>
bool alone(ShiftQp& qp, F&& action) {
  try {
    action();
  } catch (const std::system_error& error) {
    qp.fail(error.what());
  }
  return true;
}

}  // namespace

Backup::Backup(Surroundings surroundings, const Settings& settings, bool in_background)
    : around_(std::move(surroundings)),
      settings_(settings),
      in_background_(in_background),
      failures_{make_queue(near(), around_.ring), make_queue(far(), around_.ring)},
      control_queue_(make_queue(far(), around_.ring)) {}

Backup::~Backup() {
  for (const auto& each : {failures_[0], failures_[1], control_queue_}) each->on_event({});
}

std::shared_ptr<ShiftQp> Backup::add(ShiftQp::Config config) {
  const auto held = hold();
  auto qp = std::make_shared<ShiftQp>(shared_from_this(), std::move(config));
  qp->start();
  run([weak = qp->weak_from_this()] {
    const auto made = weak.lock();
    return !made || made->make_twin();
  });
  return qp;
}

// ---------------------------------------------------------------- what drives it

void Backup::advance() {
  const auto held = hold();
  if (advancing_) return;
  struct Advancing {
    bool& flag;
    explicit Advancing(bool& f) : flag(f) { flag = true; }
    ~Advancing() { flag = false; }
  } const advancing(advancing_);
  while (step()) continue;
}

// Whether anything happened.
bool Backup::step() {
  bool happened = false;
  for (const Path path : {Path::primary, Path::backup})
    for (const Failure& each : take_failures(path))
      happened |= alone(*each.first, [&] { each.first->failed_on(path, each.second); });
  for (const WorkCompletion& each : control_queue_->poll(kAll))
    if (const auto qp = find(controls_, each.qp_num))
      happened |= alone(*qp, [&] { qp->handle_control(each); });
  for (const auto& [number, weak] : Owners(active_))
    if (const auto qp = weak.lock()) alone(*qp, [&] { happened |= qp->advance(); });
  return happened;
}

// What failed on a path; what was put back comes first.
std::vector<Backup::Failure> Backup::take_failures(Path path) {
  std::vector<Failure> failures = std::exchange(put_back_[index_of(path)], {});
  for (const WorkCompletion& each : failures_[index_of(path)]->poll(kAll))
    if (auto qp = owner(path, each.qp_num)) failures.emplace_back(std::move(qp), each);
  return failures;
}

void Backup::purge_failures(const ShiftQp& qp, Path path) {
  std::vector<Failure> others = take_failures(path);
  std::erase_if(others, [&](const Failure& each) { return each.first.get() == &qp; });
  put_back_[index_of(path)] = std::move(others);
}

std::optional<std::int64_t> Backup::next_time_ns() {
  const auto held = hold();
  std::optional<std::int64_t> next;
  for (const auto& [number, weak] : active_) {
    const auto qp = weak.lock();
    const auto due = qp ? qp->machine().next_time_ns() : std::nullopt;
    if (due) next = std::min(*due, next.value_or(*due));
  }
  return next;
}

void Backup::arm() {
  for (const auto& each : {failures_[0], failures_[1], control_queue_}) each->arm(false);
}

bool Backup::is_active() {
  const auto held = hold();
  return !active_.empty();
}

void Backup::fail_all(const std::string& why) {
  const auto held = hold();
  for (const auto& [number, weak] : Owners(owners_[index_of(Path::primary)]))
    if (const auto qp = weak.lock()) qp->fail(why);
}

bool Backup::run(Task task) {
  if (!in_background_) return task();
  if (untried_ == 0 && around_.ring) around_.ring();
  tasks_.insert(tasks_.begin() + static_cast<std::ptrdiff_t>(untried_++), std::move(task));
  return true;
}

bool Backup::work() {
  const auto held = hold();
  if (tasks_.empty()) return false;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  if (untried_ != 0) --untried_;
  const bool done = task();
  if (!done) tasks_.push_back(std::move(task));
  return done;
}

std::size_t Backup::tasks() {
  const auto held = hold();
  return tasks_.size();
}

std::size_t Backup::untried() {
  const auto held = hold();
  return untried_;
}

// ---------------------------------------------------------------- what its queue pairs share

void Backup::add_owner(Path path, std::uint32_t number, ShiftQp& qp) {
  owners_[index_of(path)][number] = qp.weak_from_this();
}

void Backup::add_control(std::uint32_t number, ShiftQp& qp) {
  controls_[number] = qp.weak_from_this();
}

void Backup::remove(const ShiftQp& qp) {
  owners_[index_of(Path::primary)].erase(qp.number());
  active_.erase(qp.number());
  if (const auto twin = qp.twin_number()) owners_[index_of(Path::backup)].erase(*twin);
  if (const auto control = qp.control_number()) controls_.erase(*control);
  for (auto& failures : put_back_)
    std::erase_if(failures, [&](const Failure& each) { return each.first.get() == &qp; });
}

void Backup::set_active(ShiftQp& qp, bool active) {
  if (active)
    active_[qp.number()] = qp.weak_from_this();
  else
    active_.erase(qp.number());
}

std::shared_ptr<ShiftQp> Backup::find(const Owners& owners, std::uint32_t number) {
  const auto found = owners.find(number);
  return found == owners.end() ? nullptr : found->second.lock();
}

std::shared_ptr<ShiftQp> Backup::owner(Path path, std::uint32_t number) const {
  return find(owners_[index_of(path)], number);
}

const Keys& Backup::fetch_keys(const Gid& nic) {
  const Keys found = around_.directory->region_keys(nic);
  Keys& known = keys_[{nic.high, nic.low}];
  for (const auto& [key, backup] : found) known[key] = backup;
  return known;
}

}  // namespace softroce::shift
