#include "worker/neox/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <nlohmann/json.hpp>

namespace zerod::neox {
namespace {

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
  }
  ZEROD_CHECK(false, "dtype ", static_cast<int>(dtype));
}

/// The length of the header as the format has it, then the header, padded so that data is aligned.
std::string WithLength(std::string header) {
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::string text(sizeof(length), '\0');
  std::memcpy(text.data(), &length, sizeof(length));
  return text + header;
}

}  // namespace

uint64_t StoredTensor::bytes() const {
  auto bytes = static_cast<uint64_t>(SizeOf(dtype));
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

std::vector<std::vector<StoredTensor>> DivideIntoFiles(std::vector<StoredTensor> tensors,
                                                       uint64_t max_bytes) {
  std::vector<std::vector<StoredTensor>> files;
  uint64_t bytes = 0;
  for (StoredTensor& tensor : tensors) {
    if (files.empty() || (bytes > 0 && bytes + tensor.bytes() > max_bytes)) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    files.back().push_back(std::move(tensor));
  }
  return files;
}

SafetensorsWriter::Layout SafetensorsWriter::Arrange(const std::vector<StoredTensor>& tensors) {
  // Wide elements first: readers that map the file need each tensor aligned to its elements.
  std::vector<const StoredTensor*> order;
  order.reserve(tensors.size());
  for (const StoredTensor& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, [](const StoredTensor* a, const StoredTensor* b) {
    return SizeOf(a->dtype) > SizeOf(b->dtype);
  });
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  Layout layout;
  uint64_t end = 0;
  for (const StoredTensor* tensor : order) {
    const uint64_t begin = std::exchange(end, end + tensor->bytes());
    header[tensor->name] = {
        {"dtype", NameOf(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {begin, end}}};
    layout.places[tensor->name] = {begin, tensor->bytes(),
                                   static_cast<uint64_t>(SizeOf(tensor->dtype))};
  }
  ZEROD_CHECK(layout.places.size() == tensors.size(), "two tensors of one name");
  layout.header = WithLength(header.dump());
  for (auto& [name, place] : layout.places) place.offset_bytes += layout.header.size();
  layout.size_bytes = layout.header.size() + end;
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<StoredTensor>& tensors)
    : SafetensorsWriter(path, Arrange(tensors)) {}

SafetensorsWriter::SafetensorsWriter(const std::string& path, Layout layout)
    : places_(std::move(layout.places)),
      missing_bytes_(layout.size_bytes - layout.header.size()),
      file_(path, layout.size_bytes) {
  file_.WriteAt(0, std::as_bytes(std::span(layout.header)));
}

void SafetensorsWriter::Write(const std::string& name, uint64_t first_index,
                              std::span<const std::byte> elements) {
  const auto found = places_.find(name);
  ZEROD_CHECK(found != places_.end(), "no tensor ", name, " in ", file_.path());
  const Place& place = found->second;
  const uint64_t begin = first_index * place.element_bytes;
  ZEROD_CHECK(begin + elements.size() <= place.bytes && elements.size() <= missing_bytes_, name,
              ": bytes ", begin, " + ", elements.size(), " of ", place.bytes);
  file_.WriteAt(place.offset_bytes + begin, elements);
  missing_bytes_ -= elements.size();
}

void SafetensorsWriter::Finish() {
  ZEROD_CHECK(missing_bytes_ == 0, missing_bytes_, " bytes of ", file_.path(), " were not written");
  file_.Sync();
}

}  // namespace zerod::neox
