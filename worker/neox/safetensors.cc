#include "worker/neox/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include <nlohmann/json.hpp>

#include "proto/contract/error.h"
#include "worker/neox/json_text.h"

namespace zerod::neox {
namespace {

using nlohmann::json;
using Entry = Safetensors::Entry;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");
static_assert(sizeof(float) == 4);

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderLimitBytes = 8 << 20;
constexpr size_t kNameLimitBytes = 512;
constexpr size_t kDimensionsMax = 8;
constexpr size_t kConvertElements = 64 * 1024;

[[noreturn]] void Fail(const std::string& path, const std::string& why) {
  throw Error(ErrorCode::kDataLoss, Concat(path, ": ", why));
}

[[noreturn]] void FailTensor(const std::string& path, const std::string& name,
                             const std::string& why) {
  Fail(path, Concat("tensor '", name, "' ", why));
}

std::optional<uint64_t> ElementBytes(const std::string& dtype) {
  static const std::map<std::string, uint64_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  const auto found = sizes.find(dtype);
  return found == sizes.end() ? std::nullopt : std::optional(found->second);
}

/// The range of every finite half-precision number fits into float32 exactly.
float FromHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero and subnormal: fraction · 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | (wide << 23) | (fraction << 13));
}

float FromBfloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

/// Takes the fields of one header entry, checking types only.
Entry ParseEntry(const std::string& path, const std::string& name, const json& value) {
  if (name.size() > kNameLimitBytes) {
    Fail(path, Concat("the header has a tensor name of ", name.size(), " bytes"));
  }
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") ||
      !value.contains("shape") || !value.contains("data_offsets")) {
    FailTensor(path, name, "needs exactly dtype, shape and data_offsets in the header");
  }
  const json& dtype = value["dtype"];
  const json& shape = value["shape"];
  const json& offsets = value["data_offsets"];
  if (!dtype.is_string() || !shape.is_array() || shape.size() > kDimensionsMax ||
      !offsets.is_array() || offsets.size() != 2) {
    FailTensor(path, name, "has a dtype, shape or data_offsets of the wrong kind");
  }
  Entry entry;
  entry.dtype = dtype.get<std::string>();
  for (const json& size : shape) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > INT64_MAX) {
      FailTensor(path, name, "has a shape that isn't made of sizes");
    }
    entry.shape.push_back(size.get<int64_t>());
  }
  if (!offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    FailTensor(path, name, "has data_offsets that aren't positions");
  }
  entry.begin_bytes = offsets[0].get<uint64_t>();
  entry.end_bytes = offsets[1].get<uint64_t>();
  return entry;
}

/// Whether the range is inside the data and as long as type and shape say.
void CheckEntry(const std::string& path, const std::string& name, const Entry& entry,
                uint64_t data_bytes) {
  const std::optional<uint64_t> element_bytes = ElementBytes(entry.dtype);
  if (!element_bytes) {
    FailTensor(path, name, "has the unknown type '" + entry.dtype.substr(0, 20) + "'");
  }
  uint64_t bytes = *element_bytes;
  for (const int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) {
      FailTensor(path, name, "has a shape whose size overflows");
    }
  }
  if (entry.begin_bytes > entry.end_bytes || entry.end_bytes > data_bytes) {
    FailTensor(path, name,
               Concat("lies at bytes ", entry.begin_bytes, " to ", entry.end_bytes,
                      " of the data, but there are ", data_bytes, "; is the file truncated?"));
  }
  if (entry.end_bytes - entry.begin_bytes != bytes) {
    FailTensor(path, name,
               Concat("has ", entry.end_bytes - entry.begin_bytes,
                      " bytes, but its type and shape "
                      "need ",
                      bytes));
  }
}

/// The format allows neither overlaps nor gaps: either could hide data.
void CheckCoverage(const std::string& path, const std::map<std::string, Entry>& tensors,
                   uint64_t data_bytes) {
  std::vector<const std::pair<const std::string, Entry>*> order;
  order.reserve(tensors.size());
  for (const auto& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin_bytes, a->second.end_bytes) <
           std::pair(b->second.begin_bytes, b->second.end_bytes);
  });
  uint64_t covered = 0;
  const std::string* after_gap = nullptr;
  for (const auto* item : order) {
    const Entry& entry = item->second;
    if (entry.begin_bytes < covered) FailTensor(path, item->first, "overlaps another tensor");
    if (entry.begin_bytes > covered && after_gap == nullptr) after_gap = &item->first;
    covered = entry.end_bytes;
  }
  // Last, because a tensor that lies on another one left a gap where it should be.
  if (after_gap != nullptr) FailTensor(path, *after_gap, "has a gap before its data");
  if (covered != data_bytes) {
    Fail(path, Concat("has ", data_bytes - covered, " bytes after the last tensor"));
  }
}

void CheckMetadata(const std::string& path, const json& metadata) {
  bool texts = metadata.is_object();
  if (texts) {
    for (const json& value : metadata) texts = texts && value.is_string();
  }
  if (!texts) Fail(path, "the header's __metadata__ is not a map of strings");
}

/// Converts through a small buffer that stays in the cache.
template <typename Convert>
void ReadConverted(const InputFile& file, uint64_t offset_bytes, std::span<float> out,
                   Convert convert) {
  std::vector<uint16_t> buffer(std::min(out.size(), kConvertElements));
  while (!out.empty()) {
    const size_t count = std::min(out.size(), buffer.size());
    const std::span<uint16_t> part(buffer.data(), count);
    file.ReadAt(offset_bytes, std::as_writable_bytes(part));
    for (size_t i = 0; i < count; ++i) out[i] = convert(part[i]);
    offset_bytes += part.size_bytes();
    out = out.subspan(count);
  }
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : file_(path) {
  if (file_.size_bytes() < kLengthBytes) Fail(path, "is too short for a safetensors file");
  uint64_t header_bytes = 0;
  file_.ReadAt(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kHeaderLimitBytes || header_bytes > file_.size_bytes() - kLengthBytes) {
    Fail(path, Concat("says that its header has ", header_bytes, " bytes, but the file has ",
                      file_.size_bytes(), " and a header at most ", kHeaderLimitBytes,
                      "; it is corrupt or no safetensors file"));
  }
  std::string header(header_bytes, '\0');
  file_.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(header)));
  data_offset_bytes_ = kLengthBytes + header_bytes;
  const uint64_t data_bytes = file_.size_bytes() - data_offset_bytes_;
  const json parsed = ParseJsonObject(header, path + ": the header");
  for (const auto& item : parsed.items()) {
    if (item.key() == "__metadata__") {
      CheckMetadata(path, item.value());
      continue;
    }
    Entry entry = ParseEntry(path, item.key(), item.value());
    CheckEntry(path, item.key(), entry, data_bytes);
    tensors_.emplace(item.key(), std::move(entry));
  }
  CheckCoverage(path, tensors_, data_bytes);
}

const Safetensors::Entry& Safetensors::Find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) FailTensor(path(), name, "is missing");
  return found->second;
}

uint64_t Safetensors::OffsetBytes(const std::string& name) const {
  return data_offset_bytes_ + Find(name).begin_bytes;
}

void Safetensors::Read(const std::string& name, uint64_t first_index, std::span<float> out) const {
  const Entry& entry = Find(name);
  const bool wide = entry.dtype == "F32";
  if (!wide && entry.dtype != "F16" && entry.dtype != "BF16") {
    FailTensor(path(), name, "has type " + entry.dtype + "; F32, F16 and BF16 can be read");
  }
  const uint64_t element_bytes = wide ? 4 : 2;
  const uint64_t numel = (entry.end_bytes - entry.begin_bytes) / element_bytes;
  ZEROD_CHECK(first_index <= numel && out.size() <= numel - first_index, name, ": ", out.size(),
              " elements from ", first_index, " on of ", numel);
  const uint64_t offset_bytes =
      data_offset_bytes_ + entry.begin_bytes + first_index * element_bytes;
  if (wide) {
    file_.ReadAt(offset_bytes, std::as_writable_bytes(out));
  } else if (entry.dtype == "F16") {
    ReadConverted(file_, offset_bytes, out, FromHalf);
  } else {
    ReadConverted(file_, offset_bytes, out, FromBfloat);
  }
}

}  // namespace zerod::neox
