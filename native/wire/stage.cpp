// SPDX-License-Identifier: GPL-2.0-or-later
#include "stage.hpp"

#include <bpf/bpf.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "../system/clock.hpp"
#include "../system/descriptor.hpp"
#include "frame_edit.hpp"

namespace softroce::wire {
namespace {

// Frames of a port that may be the kernel's on their way out.
constexpr std::uint64_t kSendFrames = 256;
constexpr std::uint32_t kRefill = 32;
// While somebody watches: one who sleeps for ever would not notice that it was stopped.
constexpr Time kWatchedSleep = 100 * kMillisecond;

int opened_map(const std::string& pin) { return checked(bpf_obj_get(pin.c_str()), pin.c_str()); }

void add_one(int eventfd) {
  const std::uint64_t one = 1;
  if (write(eventfd, &one, sizeof one) < 0 && errno != EAGAIN) checked(-1, "eventfd");
}

void clear(int eventfd) {
  std::uint64_t count;
  if (read(eventfd, &count, sizeof count) < 0 && errno != EAGAIN) checked(-1, "eventfd");
}

int new_eventfd() { return checked(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd"); }

void watch_port(int epoll, int fd, Port* port) {
  epoll_event event{.events = EPOLLIN, .data = {.ptr = port}};
  checked(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

}  // namespace

Stage::Stage(const StageConfig& config)
    : config_(config),
      area_(config.frames),
      queues_(config.bpffs + "/queues"),
      xsks_map_(opened_map(config.bpffs + "/xsks")),
      held_(config.frames),
      lines_(queues_.count()),
      epoll_(checked(epoll_create1(EPOLL_CLOEXEC), "epoll_create1")),
      wake_(new_eventfd()),
      deaths_(new_eventfd()),
      pace_(monotonic_ns()) {
  watch_port(epoll_, wake_, nullptr);
}

Stage::~Stage() {
  ports_.clear();
  for (const int fd : {epoll_, wake_, deaths_, xsks_map_}) close(fd);
}

// --- The loop --------------------------------------------------------------------------------

void Stage::run() {
  // However it ends: no caller may wait for an ended loop.
  const struct Over {
    Stage& stage;
    ~Over() {
      stage.running_ = false;
      stage.obey();
    }
  } over{*this};
  pace_.begin();
  while (!stopping_) {
    const bool busy = round();
    obey();
    pace_.breathe();
    if (!busy) rest();
  }
}

bool Stage::round() {
  bool busy = false;
  for (const auto& port : ports_) {
    if (port->is_gone) continue;
    busy |= receive(*port);
    port->reclaim();
    port->fill(config_.port_frames, kRefill);
  }
  busy |= run_events(pace_.turn());
  for (Port* port : std::exchange(to_send_, {})) transmit(*port);
  return busy || !to_send_.empty();
}

bool Stage::receive(Port& port) {
  return port.receive([&](std::uint64_t address, std::uint32_t bytes) {
    const std::uint32_t frame = FrameArea::frame_of(address);
    lab_wire_meta meta;
    std::memcpy(&meta, area_.at(address) - sizeof meta, sizeof meta);
    if (meta.port >= doors_.size() || !doors_[meta.port].opened) {
      port.count_unknown();
      area_.give_back(frame);
      return;
    }
    Held& held = held_[frame];
    held.address = address;
    held.uplink = meta.flags & LAB_WIRE_UPLINK ? port.config().rx_link : kNoLink;
    held.port = meta.port;
    held.uplink_leg = meta.uplink;
    held.link_leg = meta.link;
    held.frame = {.handle = frame, .length = bytes, .roce = (meta.flags & LAB_WIRE_ROCE) != 0};
    ++held_frames_;
    wheel_.add(pace_.time_of(meta.arrival_ns), {Step::arrive, kNoLink, frame});
  }) != 0;
}

bool Stage::run_events(Time now) {
  Time at = 0;
  Event event{};
  bool any = false;
  for (; wheel_.take(now, at, event); any = true) {
    switch (event.step) {
      case Step::arrive:
        arrive(event.frame, at);
        break;
      case Step::leave:
        leave(event.frame, event.link, at);
        break;
      case Step::advance:
        lines_[event.link]->timed = false;
        lines_[event.link]->link.advance(at, departures_);
        settle(event.link, at);
        break;
    }
  }
  return any;
}

void Stage::arrive(std::uint32_t frame, Time at) {
  const Held& held = held_[frame];
  if (held.uplink != kNoLink)
    enter(frame, held.uplink, held.uplink_leg, at);
  else
    enter(frame, doors_[held.port].config.tx_link, held.link_leg, at);
}

// By value: what a copy needs must not change while the first of the two is under way.
void Stage::enter(std::uint32_t frame, std::uint32_t link, lab_leg leg, Time at) {
  const std::uint32_t copy = leg.effects & LAB_EFFECT_DUPLICATE ? copy_of(frame, link) : kNoFrame;
  offer(frame, link, leg, at);
  if (copy != kNoFrame) offer(copy, link, leg, at);
}

std::uint32_t Stage::copy_of(std::uint32_t frame, std::uint32_t link) {
  if (!area_.has_free()) {
    line(link).link.copy_missed();
    return kNoFrame;
  }
  const std::uint32_t copy = area_.take();
  const Held& original = held_[frame];
  Held& held = held_[copy] = original;
  held.address =
      std::uint64_t{copy} * FrameArea::kFrameBytes + original.address % FrameArea::kFrameBytes;
  held.frame.handle = copy;
  held.frame.copy = true;
  std::memcpy(area_.at(held.address), area_.at(original.address), held.frame.length);
  ++held_frames_;
  return copy;
}

void Stage::offer(std::uint32_t frame, std::uint32_t link, const lab_leg& leg, Time at) {
  Held& held = held_[frame];
  std::uint8_t* bytes = area_.at(held.address);
  ShapedLink& shaped = line(link).link;
  Frame& known = held.frame;
  const std::size_t whole = known.length;
  known.ecn_capable = ecn_capable(bytes, whole);
  known.trimmed_length = static_cast<std::uint32_t>(trimmed_bytes(bytes, whole));
  known.marked = known.trimmed = false;
  const bool last_hop = held.uplink == kNoLink && doors_[held.port].config.to_host;
  if (leg.effects & LAB_EFFECT_CUT && known.trimmed_length != 0) {
    trim(bytes, whole, last_hop);
    known.length = std::exchange(known.trimmed_length, 0);
    shaped.cut();
  }
  const bool taken = shaped.offer(known, leg, at, departures_) == Offered::taken;
  if (!taken) drop(frame);
  if (taken && known.marked) mark_ce(bytes);
  if (taken && known.trimmed) trim(bytes, whole, last_hop);
  settle(link, at);
}

// What a link did becomes events; others learn how much waits.
void Stage::settle(std::uint32_t link, Time now) {
  Line& line = *lines_[link];
  for (const Departure& departure : departures_) {
    held_[departure.frame.handle].frame = departure.frame;
    wheel_.add(departure.at, {Step::leave, link, departure.frame.handle});
  }
  departures_.clear();
  if (!line.timed && line.link.next() != kNever) {
    line.timed = true;
    wheel_.add(line.link.next(), {Step::advance, link, kNoFrame});
  }
  publish(link, now);
}

void Stage::publish(std::uint32_t link, Time now) {
  const ShapedLink& shaped = lines_[link]->link;
  const std::uint64_t rate_bps = shaped.rate_bps(now), waiting_bytes = shaped.waiting_bytes();
  std::int64_t clear_ns = pace_.monotonic_of(shaped.busy_until());
  if (waiting_bytes != 0 && rate_bps != 0)
    clear_ns += static_cast<std::int64_t>(waiting_bytes * 8'000'000'000 / rate_bps);
  queues_.set(link, {.waiting_bytes = waiting_bytes,
                     .rate_bps = rate_bps,
                     .clear_ns = static_cast<std::uint64_t>(clear_ns)});
}

void Stage::leave(std::uint32_t frame, std::uint32_t link, Time at) {
  Held& held = held_[frame];
  if (held.uplink == kNoLink) return send(frame, at);
  lines_[link]->link.released(held.frame, at, at);
  held.uplink = kNoLink;
  held.frame.copy = false;
  const std::uint32_t next = doors_[held.port].config.tx_link;
  if (!(held.link_leg.effects & LAB_EFFECT_DROP)) return enter(frame, next, held.link_leg, at);
  line(next).link.gone(held.frame);
  drop(frame);
}

void Stage::send(std::uint32_t frame, Time at) {
  Held& held = held_[frame];
  Door& door = doors_[held.port];
  held.due = at;
  if (door.port == nullptr) return lose(door, frame, ShapedLink::Loss::port_down);
  if (!door.port->has_unsent()) to_send_.push_back(door.port);
  if (!door.port->send(held.address, held.frame.length))
    lose(door, frame, ShapedLink::Loss::tx_failed);
}

void Stage::transmit(Port& port) {
  Door& door = doors_[port.config().ifindex];
  ShapedLink& link = lines_[port.config().tx_link]->link;
  while (port.has_unsent()) {
    const Time began = pace_.clock();
    const Port::Kick kick = port.kick();
    const Time took = kick.taken == 0 ? 0 : pace_.clock() - began;
    for (std::uint32_t i = 0; i < kick.taken; ++i) {
      // The kernel sends one after the other: the first at once, the last when all but it are gone.
      const Time at = began + took * i / kick.taken;
      const Held& held = held_[port.pop_taken()];
      --held_frames_;
      if (kick.refused && i + 1 == kick.taken) {
        link.lost(held.frame, ShapedLink::Loss::tx_failed);
        ++door.tx_failed;
      } else {
        link.released(held.frame, held.due, at);
      }
    }
    port.reclaim();
    if (kick.state != Port::State::up) {
      while (port.has_unsent()) lose(door, port.pop_withdrawn(), ShapedLink::Loss::port_down);
      if (kick.state == Port::State::gone) mourn(port);
      return;
    }
    if (kick.taken == 0) return to_send_.push_back(&port);
  }
}

void Stage::lose(Door& door, std::uint32_t frame, ShapedLink::Loss why) {
  lines_[door.config.tx_link]->link.lost(held_[frame].frame, why);
  ++(why == ShapedLink::Loss::port_down ? door.lost_port_down : door.tx_failed);
  drop(frame);
}

void Stage::drop(std::uint32_t frame) {
  --held_frames_;
  area_.give_back(frame);
}

void Stage::mourn(Port& port) {
  if (port.is_gone) return;
  port.is_gone = true;
  doors_[port.config().ifindex].port = nullptr;
  epoll_ctl(epoll_, EPOLL_CTL_DEL, port.fd(), nullptr);
  add_one(deaths_);
}

// Nothing is to be done before the next event: sleep until shortly before, and spin from then on.
void Stage::rest() {
  const Time next = wheel_.next();
  if (!pace_.worth_sleeping(next)) return pace_.relax();
  std::array<epoll_event, 8> events;
  const Time longest = watched_ ? kWatchedSleep : kNever;
  const int n = pace_.sleep(epoll_, events.data(), events.size(), next, longest);
  for (int i = 0; i < n; ++i) {
    auto* port = static_cast<Port*>(events[i].data.ptr);
    if (port == nullptr)
      clear(wake_);
    else if (events[i].events & (EPOLLERR | EPOLLHUP))
      mourn(*port);
  }
}

Stage::Line& Stage::line(std::uint32_t directed) {
  std::unique_ptr<Line>& line = lines_.at(directed);
  if (line == nullptr) {
    line = std::make_unique<Line>();
    line->link.set_epoch(epoch_);
  }
  return *line;
}

// --- From other threads ----------------------------------------------------------------------

void Stage::stop() {
  stopping_ = true;
  add_one(wake_);
}

void Stage::in_loop(std::function<void()> work) {
  if (!running_) throw std::runtime_error("the wire stage does not run");
  order_failure_ = nullptr;
  std::function<void()>* order = &work;
  order_ = order;
  add_one(wake_);
  order_.wait(order);
  if (order_failure_) std::rethrow_exception(order_failure_);
}

void Stage::obey() {
  std::function<void()>* order = order_.load();
  if (order == nullptr) return;
  try {
    (*order)();
  } catch (...) {
    order_failure_ = std::current_exception();
  }
  order_ = nullptr;
  order_.notify_one();
}

std::uint64_t Stage::available() const {
  std::uint64_t spoken_for = ports_.size() * (config_.port_frames + kSendFrames);
  for (const auto& line : lines_) spoken_for += line == nullptr ? 0 : line->reserved;
  return spoken_for < config_.frames ? config_.frames - spoken_for : 0;
}

void Stage::open_port(const PortConfig& config, int netns) {
  bool known = false, room = true;
  in_loop([&] {
    line(config.rx_link);
    line(config.tx_link);
    if (config.ifindex >= doors_.size()) doors_.resize(config.ifindex + 1);
    known = doors_[config.ifindex].port != nullptr;
    room = available() >= config_.port_frames + kSendFrames;
  });
  if (known) return;
  if (!room) throw std::runtime_error("no frames are left for another port");
  area_.pin();
  auto port = std::make_unique<Port>(area_, ++ports_opened_, config, netns);
  Port* opened = port.get();
  watch_port(epoll_, opened->fd(), opened);
  in_loop([&] {
    doors_[config.ifindex] = {.config = config, .port = opened, .opened = true};
    opened->fill(config_.port_frames, 0);
    ports_.push_back(std::move(port));
  });
  opened->insert_into(xsks_map_);
}

bool Stage::shape(std::uint32_t directed, const lab_shape& shape, NoRoom& refusal) {
  if (shape.delays > LAB_SHAPE_PARTS || shape.queues > LAB_SHAPE_PARTS)
    throw std::runtime_error("a shape of too many parts");
  bool fits = false;
  in_loop([&] {
    Line& changed = line(directed);
    const std::uint64_t free = available() + changed.reserved;
    refusal = {.needed_frames = frames_needed(shape),
               .available_frames = free,
               .all_frames = config_.frames};
    fits = refusal.needed_frames <= free;
    if (!fits) return;
    changed.reserved = refusal.needed_frames;
    changed.link.shape(shape);
    changed.base = changed.link.figures();
    publish(directed, pace_.clock());
  });
  return fits;
}

void Stage::set_epoch(std::uint64_t epoch_ns) {
  in_loop([&] {
    epoch_ = pace_.signed_time_of(epoch_ns);
    for (std::uint32_t link = 0; link < lines_.size(); ++link) {
      if (lines_[link] == nullptr) continue;
      lines_[link]->link.set_epoch(epoch_);
      publish(link, pace_.clock());
    }
  });
}

LinkFigures Stage::in_clock_time(LinkFigures figures) const {
  figures.first_ns += figures.released != 0 ? pace_.base_ns() : 0;
  figures.last_ns += figures.released != 0 ? pace_.base_ns() : 0;
  return figures;
}

LinkFigures Stage::link_figures(std::uint32_t directed) {
  LinkFigures figures{};
  in_loop([&] { figures = line(directed).link.figures(); });
  return in_clock_time(figures);
}

LinkFigures Stage::link_base(std::uint32_t directed) {
  LinkFigures figures{};
  in_loop([&] { figures = line(directed).base; });
  return in_clock_time(figures);
}

PortFigures Stage::port_figures(std::uint32_t ifindex) {
  PortFigures figures{};
  in_loop([&] {
    const Door& door = doors_.at(ifindex);
    if (!door.opened) throw std::out_of_range("never opened");
    figures = door.port == nullptr ? door.last : door.port->figures();
    figures.lost_port_down = door.lost_port_down;
    figures.tx_failed = door.tx_failed;
    figures.is_gone = door.port == nullptr;
  });
  return figures;
}

StageFigures Stage::figures() {
  StageFigures figures{};
  in_loop([&] {
    figures = pace_.figures();
    figures.frames = config_.frames;
    figures.free_frames = area_.free_frames();
    figures.held = held_frames_;
    figures.ports = ports_.size();
    for (const auto& line : lines_) figures.reserved_frames += line == nullptr ? 0 : line->reserved;
  });
  return figures;
}

std::vector<Pause> Stage::pauses() {
  std::vector<Pause> found;
  in_loop([&] {
    pace_.turn();  // the order may have come in the middle of a round that was stopped
    found = pace_.pauses().kept();
  });
  return found;
}

void Stage::set_watched(bool watched) {
  watched_ = watched;
  add_one(wake_);
}

void Stage::bury() {
  clear(deaths_);
  std::vector<std::unique_ptr<Port>> dead;
  in_loop([&] {
    const auto first = std::stable_partition(ports_.begin(), ports_.end(),
                                             [](const auto& port) { return !port->is_gone; });
    for (auto port = first; port != ports_.end(); ++port) {
      std::erase(to_send_, port->get());
      doors_[(*port)->config().ifindex].last = (*port)->figures();
      dead.push_back(std::move(*port));
    }
    ports_.erase(first, ports_.end());
  });
  std::vector<std::uint16_t> numbers;
  for (const auto& port : dead) numbers.push_back(port->number());
  dead.clear();  // closes the sockets: the kernel releases their frames
  in_loop([&] {
    for (const std::uint16_t number : numbers) area_.give_back_all_of(number);
  });
}

}  // namespace softroce::wire
