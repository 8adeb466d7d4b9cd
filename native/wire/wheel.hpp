// SPDX-License-Identifier: GPL-2.0-or-later
// A timing wheel: events come out in the exact order of (time, tie, insertion), however late or
// seldom one looks. A tie is a small number that is given with an event; 0 if none is.
//
//   ready      what lies in slots up to the cursor; few events, in order
//   near       a ring of slots, two groups of them: the cursor's group and the next
//   far        a ring of groups
//   overflow   a heap of all beyond
//
// With 2^12 groups of 2^11 slots, a slot of 2^20 ps (1.05 us) suits a machine's own frames: 2.1 ms
// near at least, 8.8 s far; one of 2^10 ps a simulated fabric's: 2.1 us and 8.6 ms. Shorter slots
// leave bits of an event's 32 for its tie.
//
// A slot's events lie in the order of insertion, side by side in a few pieces of memory, and are
// sorted when the cursor gets there: adding and taking an event cost the same however many there
// are. A group's events are all in one place at any time, and move on together. So what lies in a
// slot was inserted in that order, and no event needs a number.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "../engine/units.hpp"

namespace softroce::wire {

// 4096 places on a ring, each with a list of pieces, and which of them are in use.
class Slots {
 public:
  static constexpr int kBits = 12;
  static constexpr std::uint64_t kCount = 1 << kBits;
  static constexpr std::uint32_t kEmpty = UINT32_MAX;
  static constexpr std::uint64_t kNone = UINT64_MAX;
  struct List {
    std::uint32_t first = kEmpty, last = kEmpty;
    std::uint32_t used = 0;  // of the last piece; the others are full
  };

  // The list of place `number`, to be given its first piece; `take` empties it.
  List& operator[](std::uint64_t number) { return lists_[number % kCount]; }
  const List& operator[](std::uint64_t number) const { return lists_[number % kCount]; }
  void use(std::uint64_t number) {
    const std::uint64_t at = number % kCount;
    used_[at / 64] |= std::uint64_t{1} << at % 64;
    summary_ |= std::uint64_t{1} << at / 64;
  }
  List take(std::uint64_t number) {
    const std::uint64_t at = number % kCount;
    used_[at / 64] &= ~(std::uint64_t{1} << at % 64);
    if (used_[at / 64] == 0) summary_ &= ~(std::uint64_t{1} << at / 64);
    return std::exchange(lists_[at], {});
  }

  // The first place in use of the kCount - 1 behind `cursor`; kNone if there is none.
  std::uint64_t next(std::uint64_t cursor) const {
    if (summary_ == 0) return kNone;
    const std::uint64_t from = (cursor + 1) % kCount;
    const std::uint64_t at = first_from(from);
    return cursor + 1 + (at - from) % kCount;
  }

 private:
  std::uint64_t first_from(std::uint64_t from) const {
    const std::uint64_t word = from / 64;
    const std::uint64_t here = used_[word] & ~std::uint64_t{0} << from % 64;
    if (here != 0) return word * 64 + std::countr_zero(here);
    const std::uint64_t later = word == 63 ? 0 : summary_ & ~std::uint64_t{0} << (word + 1);
    const std::uint64_t next = std::countr_zero(later != 0 ? later : summary_);
    return next * 64 + std::countr_zero(used_[next]);
  }

  std::array<List, kCount> lists_;
  std::array<std::uint64_t, kCount / 64> used_{};
  std::uint64_t summary_ = 0;
};

template <typename T, int kSlotShift = 20, int kTieBits = 0>  // a slot lasts 2^kSlotShift ps
class Wheel {
 public:
  static constexpr std::uint32_t kTies = 1U << kTieBits;

  // Times are not negative, ties below kTies. An event in the past is due at once, in its turn.
  void add(Time at, const T& value, std::uint32_t tie = 0) {
    place({at, tie, value});
    ++size_;
    if (next_known_ && at < next_) next_ = at;
  }

  // The time of the first event, or kNever.
  Time next() {
    if (!next_known_) next_ = find_next();
    next_known_ = true;
    return next_;
  }

  // Takes the first event that is due at `now` into `value`; false: none is.
  bool take(Time now, Time& at, T& value) {
    if (next_known_ && next_ > now) return false;
    const std::uint64_t limit = slot_of(now);
    while (ready_.size() - taken_ < kAhead && cursor_ < limit && move_on(limit)) {
    }
    if (taken_ == ready_.size() || ready_[taken_].at > now) return false;
    at = ready_[taken_].at;
    value = ready_[taken_].value;
    if (++taken_ == ready_.size()) forget_taken();
    --size_;
    next_known_ = false;
    return true;
  }

  std::size_t size() const { return size_; }

  // What will be taken after `others` others, if it is near and nothing comes between: so that what
  // it is about can be fetched from memory meanwhile. Null: not known.
  const T* foresee(std::size_t others) const {
    const std::size_t at = taken_ + others;
    return at < ready_.size() ? &ready_[at].value : nullptr;
  }

 private:
  // While fewer events than this are ready, the cursor goes ahead of time, by so many slots at
  // most.
  static constexpr std::size_t kAhead = 24;
  static constexpr std::uint64_t kAheadSlots = 256;
  static constexpr int kGroupBits = Slots::kBits - 1;
  static constexpr std::size_t kFewEvents = 32;  // that are sorted best by insertion
  static constexpr int kDigitBits = 7;
  static constexpr std::uint32_t kDigitMask = (1 << kDigitBits) - 1;

  struct Ready {
    Time at;
    std::uint32_t tie;
    T value;
  };
  struct Earlier {
    bool operator()(const Ready& a, const Ready& b) const {
      return a.at != b.at ? a.at < b.at : a.tie < b.tie;
    }
  };
  struct Numbered {
    Ready event;
    std::uint64_t order;
    bool operator<(const Numbered& other) const {  // a heap's top is its greatest
      return event.at != other.event.at ? event.at > other.event.at : order > other.order;
    }
  };
  struct Item {            // in a slot or a group
    std::uint32_t moment;  // ps since that began, and behind them the tie
    T value;
  };
  static_assert(kSlotShift + (Slots::kBits - 1) + kTieBits <= 32);
  struct alignas(64) Piece {
    static constexpr std::size_t kItems = std::max<std::size_t>(7, (64 - 4) / sizeof(Item));
    std::uint32_t following = Slots::kEmpty;
    std::array<Item, kItems> items;
  };

  static std::uint64_t slot_of(Time at) { return static_cast<std::uint64_t>(at) >> kSlotShift; }
  static std::uint64_t group_of(std::uint64_t slot) { return slot >> kGroupBits; }
  static Time begin_of_slot(std::uint64_t slot) { return static_cast<Time>(slot << kSlotShift); }
  static Time begin_of_group(std::uint64_t group) { return begin_of_slot(group << kGroupBits); }
  static Item item(const Ready& event, Time begin) {
    return {static_cast<std::uint32_t>(event.at - begin) << kTieBits | event.tie, event.value};
  }
  static Ready event(const Item& item, Time begin) {
    return {begin + (item.moment >> kTieBits), item.moment % kTies, item.value};
  }

  std::uint32_t new_piece() {
    if (free_ == Slots::kEmpty) {
      pieces_.emplace_back();
      return static_cast<std::uint32_t>(pieces_.size() - 1);
    }
    const std::uint32_t index = std::exchange(free_, pieces_[free_].following);
    pieces_[index].following = Slots::kEmpty;
    return index;
  }

  void append(Slots& slots, std::uint64_t number, const Item& item) {
    Slots::List& list = slots[number];
    if (list.last == Slots::kEmpty) {
      list.first = list.last = new_piece();
      slots.use(number);
    } else if (list.used == Piece::kItems) {
      const std::uint32_t more = new_piece();
      pieces_[list.last].following = more;
      list.last = more;
      list.used = 0;
    }
    // Nothing is read of the piece, which may be far: a store waits for memory by itself.
    pieces_[list.last].items[list.used++] = item;
  }
  static std::uint32_t used(const Slots::List& list, std::uint32_t piece) {
    return piece == list.last ? list.used : Piece::kItems;
  }

  // Those of a list, in the order of insertion.
  template <typename F>
  void each_item(const Slots::List& list, F take) const {
    for (std::uint32_t index = list.first; index != Slots::kEmpty; index = pieces_[index].following)
      for (std::uint32_t each = 0; each < used(list, index); ++each)
        take(pieces_[index].items[each]);
  }
  void free(const Slots::List& list) {
    if (list.last == Slots::kEmpty) return;
    pieces_[list.last].following = std::exchange(free_, list.first);
  }

  void place(const Ready& event) {
    const std::uint64_t slot = slot_of(event.at);
    const std::uint64_t group = group_of(slot), here = group_of(cursor_);
    if (slot <= cursor_)
      insert(event);
    else if (group <= here + 1)
      append(near_, slot, item(event, begin_of_slot(slot)));
    else if (group - here < Slots::kCount)
      append(far_, group, item(event, begin_of_group(group)));
    else
      push_overflow(event);
  }

  // In its turn among those that are ready.
  void insert(const Ready& event) {
    if (ready_.size() == taken_ || !Earlier{}(event, ready_.back())) return ready_.push_back(event);
    const auto first = ready_.begin() + static_cast<std::ptrdiff_t>(taken_);
    ready_.insert(std::upper_bound(first, ready_.end(), event, Earlier{}), event);
  }

  void forget_taken() {
    ready_.clear();
    taken_ = 0;
  }

  void push_overflow(const Ready& event) {
    overflow_.push_back({event, overflowed_++});
    std::push_heap(overflow_.begin(), overflow_.end());
  }

  // The first slot that may hold an event, behind the cursor.
  std::uint64_t next_slot() const {
    const std::uint64_t slot = near_.next(cursor_);
    if (slot != Slots::kNone) return slot;
    const std::uint64_t group = far_.next(group_of(cursor_));
    if (group != Slots::kNone) return group << kGroupBits;
    return overflow_.empty() ? Slots::kNone : slot_of(overflow_.front().event.at);
  }

  // Moves the cursor to the next slot with events, `limit` at most. False: that is too far ahead.
  bool move_on(std::uint64_t limit) {
    const std::uint64_t slot = std::min(next_slot(), limit);
    if (taken_ != ready_.size() && slot - slot_of(ready_[taken_].at) > kAheadSlots) return false;
    if (taken_ != 0 && taken_ >= ready_.size() / 2) drop_taken();
    const std::uint64_t before = group_of(std::exchange(cursor_, slot));
    if (group_of(slot) != before) bring_near(before);
    const Slots::List list = near_.take(slot);
    items_.clear();
    each_item(list, [this](const Item& item) { items_.push_back(item); });
    free(list);
    sort_items();
    for (const Item& item : items_) ready_.push_back(event(item, begin_of_slot(slot)));
    return true;
  }

  void drop_taken() {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }

  // The cursor has come to another group than `before`.
  void bring_near(std::uint64_t before) {
    const std::uint64_t group = group_of(cursor_);
    while (!overflow_.empty() &&
           group_of(slot_of(overflow_.front().event.at)) - group < Slots::kCount) {
      const Ready first = overflow_.front().event;
      std::pop_heap(overflow_.begin(), overflow_.end());
      overflow_.pop_back();
      place(first);
    }
    if (group != before + 1) spread(group);
    spread(group + 1);
  }

  // The events of a group, over its slots.
  void spread(std::uint64_t group) {
    const Slots::List list = far_.take(group);
    each_item(list, [this, begin = begin_of_group(group)](const Item& item) {
      place(event(item, begin));
    });
    free(list);
  }

  // Those of a slot, by their moments; what is equal keeps its order.
  void sort_items() {
    const auto earlier = [](const Item& a, const Item& b) { return a.moment < b.moment; };
    if (items_.size() <= kFewEvents) {
      for (std::size_t each = 1; each < items_.size(); ++each) {
        const Item item = items_[each];
        std::size_t at = each;
        for (; at > 0 && earlier(item, items_[at - 1]); --at) items_[at] = items_[at - 1];
        items_[at] = item;
      }
    } else if (!std::is_sorted(items_.begin(), items_.end(), earlier)) {
      for (int shift = 0; shift < kSlotShift + kTieBits; shift += kDigitBits) sort_by_digit(shift);
    }
  }

  // A step of radix sort, which costs no branch that the processor would guess wrong.
  void sort_by_digit(int shift) {
    std::array<std::uint32_t, 1 << kDigitBits> places{};
    const auto digit = [shift](const Item& item) { return item.moment >> shift & kDigitMask; };
    for (const Item& item : items_) ++places[digit(item)];
    std::exclusive_scan(places.begin(), places.end(), places.begin(), 0U);
    sorted_.resize(items_.size());
    for (const Item& item : items_) sorted_[places[digit(item)]++] = item;
    items_.swap(sorted_);
  }

  Time earliest(const Slots::List& list, Time begin) const {
    std::uint32_t least = UINT32_MAX;
    each_item(list, [&least](const Item& item) { least = std::min(least, item.moment); });
    return begin + (least >> kTieBits);
  }

  Time find_next() const {
    if (taken_ != ready_.size()) return ready_[taken_].at;
    if (const std::uint64_t slot = near_.next(cursor_); slot != Slots::kNone)
      return earliest(near_[slot], begin_of_slot(slot));
    if (const std::uint64_t group = far_.next(group_of(cursor_)); group != Slots::kNone)
      return earliest(far_[group], begin_of_group(group));
    return overflow_.empty() ? kNever : overflow_.front().event.at;
  }

  std::vector<Ready> ready_;          // from `taken_` on
  std::vector<Item> items_, sorted_;  // of the slot that the cursor comes to
  std::size_t taken_ = 0;
  Slots near_, far_;
  std::uint64_t cursor_ = 0;  // slots up to this one have been emptied
  std::vector<Piece> pieces_;
  std::uint32_t free_ = Slots::kEmpty;
  std::vector<Numbered> overflow_;
  std::uint64_t overflowed_ = 0;
  std::size_t size_ = 0;
  Time next_ = kNever;
  bool next_known_ = true;
};

}  // namespace softroce::wire
