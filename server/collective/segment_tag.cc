#include "proto/contract/error.h"
#include "server/collective/communicator.h"

namespace zerod {
namespace {

constexpr int kTicketBits = 32;
constexpr int kLayerBits = 12;
constexpr int kChunkBits = 2;
constexpr int kKindBits = 4;
constexpr int kRankBits = 12;
// The two top bits stay zero: values with them set are free for the transport's own messages.
static_assert(kTicketBits + kLayerBits + kChunkBits + kKindBits + kRankBits == 62);

uint64_t Append(uint64_t value, uint64_t field, int bits, const char* name) {
  ZEROD_CHECK(field < (uint64_t{1} << bits), "segment tag: ", name, " is ", field,
              ", it must be below ", uint64_t{1} << bits);
  return (value << bits) | field;
}

}  // namespace

uint64_t SegmentTag::Value() const {
  uint64_t value = Append(0, ticket, kTicketBits, "ticket");
  value = Append(value, layer, kLayerBits, "layer");
  value = Append(value, chunk, kChunkBits, "chunk");
  value = Append(value, kind, kKindBits, "kind");
  return Append(value, rank, kRankBits, "rank");
}

}  // namespace zerod
