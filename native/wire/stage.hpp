// SPDX-License-Identifier: GPL-2.0-or-later
// The wire stage: frames come in by ports, cross the links that they are meant for, and go out.
//
// One thread calls `run`; everything else is called from another thread, and what touches frames
// is handed to `run` and waited for.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "../../xdp/lab_shape.h"
#include "figures.hpp"
#include "frame_area.hpp"
#include "link.hpp"
#include "pace.hpp"
#include "port.hpp"
#include "protocol.hpp"
#include "queue_map.hpp"
#include "wheel.hpp"

namespace softroce::wire {

struct StageConfig {
  std::string bpffs;          // where the maps `xsks` and `queues` are pinned
  std::uint32_t frames;       // in the pool
  std::uint32_t port_frames;  // that lie ready at each port for what arrives, kRing at most
};

class Stage {
 public:
  explicit Stage(const StageConfig& config);
  ~Stage();

  // Until `stop`.
  void run();
  void stop();

  // Throw std::system_error; std::out_of_range for a directed link that the lab does not have.
  void open_port(const PortConfig& config, int netns);
  // False: it does not fit, and `refusal` has the reason; nothing has changed.
  bool shape(std::uint32_t directed, const lab_shape& shape, NoRoom& refusal);
  void set_epoch(std::uint64_t epoch_ns);
  LinkFigures link_figures(std::uint32_t directed);
  LinkFigures link_base(std::uint32_t directed);  // when its shape was last set
  PortFigures port_figures(std::uint32_t ifindex);
  StageFigures figures();
  std::vector<Pause> pauses();
  // Whether somebody will ask for pauses: then the loop sleeps for 100 ms at most.
  void set_watched(bool watched);

  // Readable when a port has died: then `bury` is to be called.
  int deaths() const { return deaths_; }
  void bury();

 private:
  LinkFigures in_clock_time(LinkFigures figures) const;
  static constexpr std::uint32_t kNoLink = UINT32_MAX;
  static constexpr std::uint32_t kNoFrame = UINT32_MAX;

  enum class Step : std::uint32_t { arrive, leave, advance };
  struct Event {
    Step step;
    std::uint32_t link;   // of leave and advance
    std::uint32_t frame;  // of arrive and leave
  };
  // State of a frame in transit.
  struct Held {
    std::uint64_t address;  // in the area
    std::uint32_t uplink;   // directed link to cross first, or kNoLink
    std::uint32_t port;     // ifindex to leave by
    lab_leg uplink_leg, link_leg;
    Frame frame;  // its metadata in the current link
    Time due;
  };
  struct Line {
    ShapedLink link;
    bool timed = false;          // an event `advance` is on its way
    std::uint64_t reserved = 0;  // frames
    LinkFigures base{};          // when the shape was set
  };
  // What outlives a port.
  struct Door {
    PortConfig config{};
    Port* port = nullptr;  // null: it is gone
    bool opened = false;
    std::uint64_t lost_port_down = 0, tx_failed = 0;
    PortFigures last{};
  };

  bool round();
  bool receive(Port& port);
  bool run_events(Time now);
  void arrive(std::uint32_t frame, Time at);
  void enter(std::uint32_t frame, std::uint32_t link, lab_leg leg, Time at);
  std::uint32_t copy_of(std::uint32_t frame, std::uint32_t link);
  void offer(std::uint32_t frame, std::uint32_t link, const lab_leg& leg, Time at);
  void settle(std::uint32_t link, Time now);
  void publish(std::uint32_t link, Time now);
  void leave(std::uint32_t frame, std::uint32_t link, Time at);
  void send(std::uint32_t frame, Time at);
  void transmit(Port& port);
  void lose(Door& door, std::uint32_t frame, ShapedLink::Loss why);
  void drop(std::uint32_t frame);
  void mourn(Port& port);
  void rest();
  Line& line(std::uint32_t directed);
  std::uint64_t available() const;  // frames that nothing is reserved for

  // Runs `work` between two rounds of the loop, and waits for it.
  void in_loop(std::function<void()> work);
  void obey();

  StageConfig config_;
  FrameArea area_;
  QueueMap queues_;
  int xsks_map_;
  Wheel<Event> wheel_;
  std::vector<Held> held_;                    // by frame
  std::vector<std::unique_ptr<Line>> lines_;  // by directed link
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Door> doors_;  // by ifindex
  std::vector<Port*> to_send_;
  std::vector<Departure> departures_;
  std::uint64_t held_frames_ = 0;
  Time epoch_ = 0;
  std::uint16_t ports_opened_ = 0;

  int epoll_, wake_, deaths_;
  Pace pace_;
  std::atomic<bool> running_{true};  // until its end: orders may come before its beginning
  std::atomic<bool> stopping_{false};
  std::atomic<bool> watched_{false};
  std::atomic<std::function<void()>*> order_{nullptr};
  std::exception_ptr order_failure_;
};

}  // namespace softroce::wire
