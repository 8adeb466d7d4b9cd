// SPDX-License-Identifier: GPL-2.0-or-later
// Notes on a capture, besides its packets: errors in it, and what was left out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace softroce::capture {

// clang-format off
#define SOFTROCE_CAPTURE_NOTES(X)                                                                 \
  X(truncated, "the file ends in the middle of a packet or block")                                \
  X(nonsense, "what follows is neither packet nor block: the rest of the file was not read")      \
  X(bad_section, "a section of unknown version or byte order: the rest of the file was not read") \
  X(oversized, "blocks of more than 16 MiB, left out")                                            \
  X(bad_block, "blocks that contradict themselves, left out")                                     \
  X(unknown_block, "blocks of unknown kind, left out")                                            \
  X(no_interface, "packets of interfaces that the file does not describe, left out")              \
  X(longer, "packets with more bytes captured than they had")                                     \
  X(no_time, "packets without a time")                                                            \
  X(bad_time, "packets with a time beyond 64 bits of nanoseconds since 1970")                     \
  X(backwards, "packets with a time before that of the packet ahead of them on their interface")  \
  X(link_type, "packets of an interface whose link type is not read")                             \
  X(vlan, "frames with VLAN tags, which were stepped over")                                       \
  X(not_roce, "frames that are not RoCEv2")                                                       \
  X(roce_v1, "frames of RoCEv1, which is not read")                                               \
  X(fragment, "fragments of IP packets, which are not put together")                              \
  X(cut_early, "frames of which too little was captured to tell what they are")                   \
  X(cut_headers, "RoCEv2 packets without all of their headers: the snap length cut them off")     \
  X(cut_payload, "RoCEv2 packets that were not captured to their end: their ICRC cannot be checked")     \
  X(malformed, "malformed RoCEv2 packets")
// clang-format on

enum class NoteKind : std::uint8_t {
#define SOFTROCE_NAME(name, text) name,
  SOFTROCE_CAPTURE_NOTES(SOFTROCE_NAME)
#undef SOFTROCE_NAME
      count
};

inline constexpr std::size_t kNoteKinds = static_cast<std::size_t>(NoteKind::count);
inline constexpr std::array<const char*, kNoteKinds> kNoteTexts = {
#define SOFTROCE_TEXT(name, text) text,
    SOFTROCE_CAPTURE_NOTES(SOFTROCE_TEXT)
#undef SOFTROCE_TEXT
};

// About bytes of the file, not about a frame.
constexpr bool has_place(NoteKind kind) { return kind <= NoteKind::unknown_block; }

struct Note {
  std::uint64_t count = 0;
  std::uint32_t first = 0;   // number of the first frame concerned, 0: none
  std::uint64_t offset = 0;  // of the first occasion in the file
  bool operator==(const Note&) const = default;
};

class Notes {
 public:
  void add(NoteKind kind, std::uint32_t frame, std::uint64_t offset) {
    Note& note = notes_[static_cast<std::size_t>(kind)];
    if (note.count++ == 0) note = {1, frame, offset};
  }
  const Note& operator[](NoteKind kind) const { return notes_[static_cast<std::size_t>(kind)]; }

 private:
  std::array<Note, kNoteKinds> notes_{};
};

}  // namespace softroce::capture
