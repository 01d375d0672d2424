#include "worker/neox/safetensors_writer.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/scratch_folder.h"
#include "worker/neox/safetensors.h"

namespace zerod::neox {
namespace {

using testing::ElementsAre;

template <typename T>
std::span<const std::byte> BytesOf(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> ReadAll(const Safetensors& file, const std::string& name, size_t numel) {
  std::vector<float> out(numel);
  file.Read(name, 0, out);
  return out;
}

TEST(SafetensorsWriter, WritesWhatCanBeRead) {
  const ScratchFolder folder;
  const std::string path = folder.File("w.safetensors");
  SafetensorsWriter writer(path, {{"half", DType::kFloat16, {3}},
                                  {"wide", DType::kFloat32, {2, 2}},
                                  {"brain", DType::kBFloat16, {1, 2}},
                                  {"scalar", DType::kFloat32, {}}});
  writer.Write("wide", 2, BytesOf<float>({3, 4}));
  writer.Write("half", 0, BytesOf<uint16_t>({0x3C00, 0xC000, 0x0001}));
  writer.Write("scalar", 0, BytesOf<float>({5}));
  writer.Write("brain", 0, BytesOf<uint16_t>({0x3F80, 0xC020}));
  writer.Write("wide", 0, BytesOf<float>({1, 2}));
  writer.Finish();
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.Publish();
  const Safetensors file(path);
  EXPECT_THAT(ReadAll(file, "half", 3), ElementsAre(1, -2, 0x1p-24F));
  EXPECT_THAT(ReadAll(file, "wide", 4), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ReadAll(file, "brain", 2), ElementsAre(1, -2.5F));
  EXPECT_THAT(ReadAll(file, "scalar", 1), ElementsAre(5));
  EXPECT_THAT(file.tensors().at("wide").shape, ElementsAre(2, 2));
  EXPECT_EQ(file.tensors().at("half").dtype, "F16");
  for (const auto& [name, entry] : file.tensors()) {
    EXPECT_EQ(file.OffsetBytes(name) % (entry.dtype == "F32" ? 4 : 2), 0U) << name;
  }
}

TEST(SafetensorsWriter, DividesTensorsInTheirOrder) {
  const auto sizes = [](uint64_t max_bytes) {
    std::vector<std::vector<std::string>> names;
    for (const auto& file : DivideIntoFiles({{"a", DType::kFloat32, {10}},
                                             {"b", DType::kFloat32, {10}},
                                             {"c", DType::kFloat32, {100}},
                                             {"d", DType::kFloat16, {10}},
                                             {"e", DType::kFloat16, {10}}},
                                            max_bytes)) {
      names.emplace_back();
      for (const StoredTensor& tensor : file) names.back().push_back(tensor.name);
    }
    return names;
  };
  EXPECT_THAT(sizes(520), ElementsAre(ElementsAre("a", "b", "c", "d", "e")));
  EXPECT_THAT(sizes(80),
              ElementsAre(ElementsAre("a", "b"), ElementsAre("c"), ElementsAre("d", "e")));
  EXPECT_THAT(sizes(1), ElementsAre(ElementsAre("a"), ElementsAre("b"), ElementsAre("c"),
                                    ElementsAre("d"), ElementsAre("e")));
}

TEST(SafetensorsWriterDeathTest, NoticesATensorThatWasForgotten) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder.File("w"), {{"a", DType::kFloat32, {2}}});
  writer.Write("a", 0, BytesOf<float>({1}));
  EXPECT_DEATH(writer.Finish(), "4 bytes of .* were not written");
}

}  // namespace
}  // namespace zerod::neox
