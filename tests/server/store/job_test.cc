#include "server/store/job.h"

#include <gmock/gmock.h>

#include "proto/contract/error.h"

namespace zerod {
namespace {

using ::testing::HasSubstr;

Placement TwoLocalRanks() {
  return {.job_id = "job", .topology = {.node = 0, .ranks_per_node = {2}}, .mesh = {.dp = 2}};
}

LayerSpec Layer(const std::string& name, const std::string& tensor, bool trainable = true) {
  LayerSpec spec;
  spec.name = name;
  spec.tensors.push_back({.name = tensor, .shape = {10, 20}, .trainable = trainable});
  return spec;
}

std::string RefusalOf(Job& job, const LayerSpec& spec) {
  try {
    job.AddLayer(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(JobTest, LayersAndTensorsHaveNamesOfTheirOwn) {
  Job job(TwoLocalRanks());
  job.AddLayer(Layer("a", "a.weight"));
  EXPECT_THAT(RefusalOf(job, Layer("a", "b.weight")), HasSubstr("layer 'a' is registered twice"));
  EXPECT_THAT(RefusalOf(job, Layer("b", "a.weight")),
              HasSubstr("tensor 'a.weight' is in layer 'a' and again in layer 'b'"));
  EXPECT_EQ(job.layers().size(), 1u);
  EXPECT_EQ(RefusalOf(job, Layer("b", "b.weight")), "");
}

TEST(JobTest, StoresNoFloat16AndReducesNothingButFloat32) {
  Job job(TwoLocalRanks());
  LayerSpec spec = Layer("a", "a.weight");
  spec.tensors[0].dtype = DType::kFloat16;
  EXPECT_THAT(RefusalOf(job, spec), HasSubstr("'a.weight' is float16"));
  spec = Layer("a", "a.weight");
  spec.reduce_dtype = DType::kBFloat16;
  EXPECT_THAT(RefusalOf(job, spec), HasSubstr("reduce_dtype is bfloat16"));
}

TEST(JobTest, CountsElementsAndBytes) {
  Job job(TwoLocalRanks());
  job.AddLayer(Layer("a", "a.weight"));
  job.AddLayer(Layer("b", "b.weight", false));
  EXPECT_EQ(job.ParametersNumel(), 400);
  EXPECT_EQ(job.TrainableNumel(), 200);
  EXPECT_EQ(job.SlotBytes(), 2 * 4096);
  EXPECT_EQ(job.StateBytes(), 2 * (4 + 1) * 4096);
}

TEST(JobTest, ThePlanHashDependsOnTheLayersAndTheirOrder) {
  auto hash_of = [](const std::vector<std::string>& names) {
    Job job(TwoLocalRanks());
    for (const std::string& name : names) job.AddLayer(Layer(name, name + ".weight"));
    return job.PlanHash();
  };
  EXPECT_EQ(hash_of({"a", "b"}), hash_of({"a", "b"}));
  EXPECT_NE(hash_of({"a", "b"}), hash_of({"b", "a"}));
  EXPECT_NE(hash_of({"a", "b"}), hash_of({"a"}));
}

TEST(JobTest, StepRecordsBeginAtZeroAndArePerRank) {
  Job job(TwoLocalRanks());
  job.Progress(0).begun = 3;
  EXPECT_EQ(job.Progress(0).begun, 3u);
  EXPECT_EQ(job.Progress(1).begun, 0u);
  EXPECT_EQ(job.Progress(1).applied, 0u);
}

}  // namespace
}  // namespace zerod
