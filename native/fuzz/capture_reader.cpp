// SPDX-License-Identifier: GPL-2.0-or-later
// The reader of captures with arbitrary input: whole, and in pieces cut by the input itself. Both
// must give the same; rows must name only what there is; and no frame is read beyond its end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "../capture/reader.hpp"

namespace {

using namespace softroce::capture;

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "capture_reader: %s\n", what);
  std::abort();
}

// Of exactly its length, so that the sanitizer detects a read beyond it.
std::unique_ptr<std::uint8_t[]> exact(const std::uint8_t* data, std::size_t size) {
  auto copy = std::make_unique_for_overwrite<std::uint8_t[]>(size);
  if (size != 0) std::memcpy(copy.get(), data, size);
  return copy;
}

void feed_in_pieces(Reader& reader, Bytes bytes) {
  std::size_t piece = 1;
  while (!bytes.empty()) {
    piece = std::min<std::size_t>(bytes.size(), 1 + (piece * 31 + bytes[0]) % 100);
    const auto copy = exact(bytes.data(), piece);
    reader.feed({copy.get(), piece});
    bytes = bytes.subspan(piece);
  }
  reader.finish();
}

void compare(Reader& whole, Reader& pieces) {
  Contents &a = whole.contents(), &b = pieces.contents();
  require(whole.stopped() == pieces.stopped(), "pieces change where it stops");
  require(whole.refusal() == pieces.refusal(), "pieces change the refusal");
  require(a.comments() == b.comments(), "pieces change the comments");
  require(a.interfaces().size() == b.interfaces().size(), "pieces change the interfaces");
  require(a.rows().size() == b.rows().size(), "pieces change how many packets there are");
  for (std::size_t i = 0; i < a.rows().size(); ++i)
    require(std::memcmp(&a.rows()[i], &b.rows()[i], sizeof(PacketRow)) == 0,
            "pieces change a packet");
  for (std::size_t i = 0; i < kNoteKinds; ++i) {
    const auto kind = static_cast<NoteKind>(i);
    require(a.notes()[kind] == b.notes()[kind], "pieces change a note");
  }
}

void check_row(const PacketRow& row, Contents& contents, Bytes file) {
  require(row.interface < contents.interfaces().size(), "a packet of no interface");
  require(row.comment >= kNoComment, "a comment that is none");
  require(row.comment < static_cast<std::int64_t>(contents.comments().size()), "no such comment");
  require(row.captured <= row.length, "more captured than there was");
  require(row.offset <= file.size() && row.captured <= file.size() - row.offset,
          "a frame outside the file");
  require(row.refusal < kRefusals.size(), "no such refusal");
  require(row.payload_at <= row.captured, "a payload behind the frame");
  if (row.has & kHasPayloadHash)
    require(row.payload_bytes <= row.captured - row.payload_at, "a hash of bytes not there");
}

// The row again, of a copy of the frame.
void read_alone(const PacketRow& row, Contents& contents, Bytes file) {
  const auto frame = exact(file.data() + row.offset, row.captured);
  PacketRow again{};
  again.time_ns = row.time_ns;
  again.offset = row.offset;
  again.number = row.number;
  again.interface = row.interface;
  again.captured = row.captured;
  again.length = row.length;
  again.comment = row.comment;
  again.has = row.has & kHasStamp;
  Notes notes;
  read_frame(frame.get(), contents.interfaces()[row.interface].link_type, again, notes);
  require(std::memcmp(&row, &again, sizeof row) == 0, "a frame alone is another row");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Bytes file{data, size};
  Reader whole, pieces;
  whole.feed(file);
  whole.finish();
  feed_in_pieces(pieces, file);
  compare(whole, pieces);
  Contents& contents = whole.contents();
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < contents.rows().size(); ++i) {
    const PacketRow& row = contents.rows()[i];
    require(row.number > number, "packets are not numbered in their order");
    number = row.number;
    check_row(row, contents, file);
    read_alone(row, contents, file);
  }
  return 0;
}
