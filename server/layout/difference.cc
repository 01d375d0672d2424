#include "server/layout/difference.h"

#include <algorithm>
#include <sstream>

#include "proto/contract/error.h"

namespace zerod {
namespace {

std::string Show(const std::string& value) { return Concat("'", value, "'"); }
std::string Show(DType value) { return DTypeName(value); }
std::string Show(float value) { return Concat(value); }
std::string Show(size_t value) { return Concat(value); }
std::string Show(const std::vector<int64_t>& shape) {
  std::ostringstream out;
  const char* separator = "";
  out << '[';
  for (const int64_t size : shape) {
    out << separator << size;
    separator = ", ";
  }
  out << ']';
  return out.str();
}

/// Compares one property after the other and keeps the first difference.
class Comparison {
 public:
  /// `where` is printed before the property, e.g. "layer 'block3'".
  explicit Comparison(std::string where) : where_(std::move(where)) {}

  template <typename T>
  Comparison& Add(const char* property, const T& here, const T& in_job) {
    if (!difference_ && here != in_job) {
      difference_ =
          Concat(where_, ": ", property, " ", Show(here), " here, ", Show(in_job), " in the job");
    }
    return *this;
  }

  Comparison& AddFlag(const char* if_set, const char* if_not, bool here, bool in_job) {
    if (!difference_ && here != in_job) {
      difference_ = Concat(where_, ": ", here ? if_set : if_not, " here, ",
                           in_job ? if_set : if_not, " in the job");
    }
    return *this;
  }

  const std::optional<std::string>& difference() const { return difference_; }

 private:
  std::string where_;
  std::optional<std::string> difference_;
};

std::optional<std::string> FirstDifference(const std::string& layer_name, size_t index,
                                           const TensorSpec& here, const TensorSpec& in_job) {
  if (here.name != in_job.name) {
    return Comparison(Concat("layer '", layer_name, "' tensor ", index))
        .Add("name", here.name, in_job.name)
        .difference();
  }
  return Comparison(Concat("layer '", layer_name, "' tensor '", here.name, "'"))
      .Add("shape", here.shape, in_job.shape)
      .Add("dtype", here.dtype, in_job.dtype)
      .AddFlag("trainable", "frozen", here.trainable, in_job.trainable)
      .Add("learning-rate multiplier", here.lr_scale, in_job.lr_scale)
      .AddFlag("weight decay on", "weight decay off", here.decay, in_job.decay)
      .difference();
}

}  // namespace

std::optional<std::string> FirstDifference(const LayerSpec& here, const LayerSpec& in_job) {
  if (here.name != in_job.name) {
    return Comparison("layer").Add("name", here.name, in_job.name).difference();
  }
  // Tensors before their number: the first one that is new or missing tells more than a count.
  const size_t common = std::min(here.tensors.size(), in_job.tensors.size());
  for (size_t i = 0; i < common; ++i) {
    const auto difference = FirstDifference(here.name, i, here.tensors[i], in_job.tensors[i]);
    if (difference) return difference;
  }
  return Comparison(Concat("layer '", here.name, "'"))
      .Add("number of tensors", here.tensors.size(), in_job.tensors.size())
      .Add("dtype of gradients", here.reduce_dtype, in_job.reduce_dtype)
      .Add("dtype of masters", here.master_dtype, in_job.master_dtype)
      .difference();
}

}  // namespace zerod
