#include "worker/neox/rotary.h"

#include <algorithm>
#include <array>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <torch/csrc/autograd/custom_function.h>

#include "proto/contract/error.h"

namespace zerod::neox {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// What both directions know about one call.
struct Geometry {
  int64_t batch;
  int64_t positions;
  int64_t heads;
  int64_t size;  // elements of a head
  int64_t pairs;

  int64_t row_numel() const { return heads * 3 * size; }
};

/// Tokens per task: below that starting a thread costs more than the work.
int64_t GrainTokens(const Geometry& geometry) {
  return std::max<int64_t>(1, 32768 / geometry.row_numel());
}

/// As an operation on elements of type T leaves it.
template <typename T>
float Rounded(float value) {
  return static_cast<float>(static_cast<T>(value));
}

template <typename T>
void RotateInPlace(T* __restrict head, const float* __restrict cosine, const float* __restrict sine,
                   int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const float low = head[i];
    const float high = head[i + pairs];
    head[i] = static_cast<T>(Rounded<T>(low * cosine[i]) - Rounded<T>(high * sine[i]));
    head[i + pairs] = static_cast<T>(Rounded<T>(high * cosine[i]) + Rounded<T>(low * sine[i]));
  }
}

/// The transposed rotation, from one place to another, and the unrotated rest.
template <typename T>
void CopyRotatedBack(T* __restrict out, const T* __restrict gradient,
                     const float* __restrict cosine, const float* __restrict sine,
                     const Geometry& geometry) {
  const int64_t pairs = geometry.pairs;
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const float low = gradient[i];
    const float high = gradient[i + pairs];
    out[i] = static_cast<T>(Rounded<T>(low * cosine[i]) + Rounded<T>(high * sine[i]));
    out[i + pairs] = static_cast<T>(Rounded<T>(high * cosine[i]) - Rounded<T>(low * sine[i]));
  }
  std::copy(gradient + 2 * pairs, gradient + geometry.size, out + 2 * pairs);
}

/// Tensor [B, H, T, D] in the memory of `fused`, not a view in the sense of autograd: the function
/// below is what differentiates it.
at::Tensor Alias(const at::Tensor& fused, const Geometry& geometry, int64_t part) {
  const int64_t row = geometry.row_numel();
  at::Tensor alias = at::empty({0}, fused.options());
  alias.set_(fused.storage(), fused.storage_offset() + part * geometry.size,
             {geometry.batch, geometry.heads, geometry.positions, geometry.size},
             {geometry.positions * row, 3 * geometry.size, row, 1});
  return alias;
}

/// Addresses the heads of a gradient [B, H, T, D] of any layout with contiguous heads.
template <typename T>
class GradientHeads {
 public:
  explicit GradientHeads(const at::Tensor& gradient)
      : tensor_(gradient.defined() && gradient.stride(3) != 1 ? gradient.contiguous() : gradient) {
    if (!tensor_.defined()) return;
    data_ = tensor_.const_data_ptr<T>();
    strides_ = {tensor_.stride(0), tensor_.stride(1), tensor_.stride(2)};
  }

  /// Null for an undefined gradient, which means zero.
  const T* At(int64_t sample, int64_t head, int64_t position) const {
    if (data_ == nullptr) return nullptr;
    return data_ + sample * strides_[0] + head * strides_[1] + position * strides_[2];
  }

 private:
  at::Tensor tensor_;
  const T* data_ = nullptr;
  std::array<int64_t, 3> strides_{};
};

template <typename T>
void RotateTokens(const at::Tensor& fused, const Geometry& geometry,
                  const RotaryTable::Angles& angles) {
  T* data = fused.mutable_data_ptr<T>();
  const float* cosines = angles.cosine.const_data_ptr<float>();
  const float* sines = angles.sine.const_data_ptr<float>();
  at::parallel_for(0, geometry.batch * geometry.positions, GrainTokens(geometry),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t token = begin; token < end; ++token) {
                       const int64_t angle = token % geometry.positions * geometry.pairs;
                       for (int64_t head = 0; head < geometry.heads; ++head) {
                         T* query = data + token * geometry.row_numel() + head * 3 * geometry.size;
                         RotateInPlace(query, cosines + angle, sines + angle, geometry.pairs);
                         RotateInPlace(query + geometry.size, cosines + angle, sines + angle,
                                       geometry.pairs);
                       }
                     }
                   });
}

template <typename T>
void WriteToken(T* out, int64_t token, const Geometry& geometry,
                const std::array<GradientHeads<T>, 3>& parts, const RotaryTable::Angles& angles) {
  const int64_t sample = token / geometry.positions;
  const int64_t position = token % geometry.positions;
  const float* cosine = angles.cosine.const_data_ptr<float>() + position * geometry.pairs;
  const float* sine = angles.sine.const_data_ptr<float>() + position * geometry.pairs;
  for (int64_t head = 0; head < geometry.heads; ++head) {
    for (size_t part = 0; part < 3; ++part, out += geometry.size) {
      const T* gradient = parts[part].At(sample, head, position);
      if (gradient == nullptr) {
        std::fill(out, out + geometry.size, T(0));
      } else if (part == 2) {
        std::copy(gradient, gradient + geometry.size, out);
      } else {
        CopyRotatedBack(out, gradient, cosine, sine, geometry);
      }
    }
  }
}

template <typename T>
void RotateTokensBack(const at::Tensor& fused, const variable_list& gradients,
                      const Geometry& geometry, const RotaryTable::Angles& angles) {
  const std::array<GradientHeads<T>, 3> parts = {GradientHeads<T>(gradients[0]),
                                                 GradientHeads<T>(gradients[1]),
                                                 GradientHeads<T>(gradients[2])};
  T* out = fused.mutable_data_ptr<T>();
  at::parallel_for(0, geometry.batch * geometry.positions, GrainTokens(geometry),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t token = begin; token < end; ++token) {
                       WriteToken(out + token * geometry.row_numel(), token, geometry, parts,
                                  angles);
                     }
                   });
}

class SplitAndRotateFunction : public torch::autograd::Function<SplitAndRotateFunction> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& fused, int64_t heads,
                               const at::Tensor& cosine, const at::Tensor& sine) {
    const Geometry geometry{fused.size(0), fused.size(1), heads, fused.size(2) / (3 * heads),
                            cosine.size(1)};
    const bool wide = fused.scalar_type() == at::kFloat;
    (wide ? RotateTokens<float> : RotateTokens<at::BFloat16>)(fused, geometry, {cosine, sine});
    context->saved_data["heads"] = heads;
    context->saved_data["positions"] = geometry.positions;
    context->saved_data["size"] = geometry.size;
    context->saved_data["batch"] = geometry.batch;
    context->saved_data["wide"] = wide;
    // Constants that nobody changes: no need for the checks of save_for_backward.
    context->saved_data["cosine"] = cosine;
    context->saved_data["sine"] = sine;
    return {Alias(fused, geometry, 0), Alias(fused, geometry, 1), Alias(fused, geometry, 2)};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    auto& saved = context->saved_data;
    const RotaryTable::Angles angles{saved["cosine"].toTensor(), saved["sine"].toTensor()};
    const Geometry geometry{saved["batch"].toInt(), saved["positions"].toInt(),
                            saved["heads"].toInt(), saved["size"].toInt(), angles.cosine.size(1)};
    const bool wide = saved["wide"].toBool();
    const at::Tensor fused =
        at::empty({geometry.batch, geometry.positions, geometry.row_numel()},
                  angles.cosine.options().dtype(wide ? at::kFloat : at::kBFloat16));
    (wide ? RotateTokensBack<float> : RotateTokensBack<at::BFloat16>)(fused, gradients, geometry,
                                                                      angles);
    return {fused, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

RotaryTable::RotaryTable(const Config& config, DType dtype)
    : pairs_(config.rotary_pairs()),
      ndims_(config.rotary_ndims()),
      base_(config.rotary_emb_base),
      dtype_(dtype) {}

RotaryTable::Angles RotaryTable::Range(int64_t first, int64_t positions) {
  const int64_t end = first + positions;
  if (!angles_.cosine.defined() || angles_.cosine.size(0) < end) {
    // Ahead of what decoding asks for, position by position.
    const int64_t rows = first == 0 ? end : 2 * end;
    // In float32 and in this order, as published models were trained: the angles of late positions
    // depend on the rounding.
    const at::Tensor even = at::arange(0, 2 * pairs_, 2, at::kFloat);
    const at::Tensor frequency =
        at::pow(base_, even.div(static_cast<double>(std::max<int64_t>(ndims_, 1)))).reciprocal();
    const at::Tensor angle = at::outer(at::arange(rows, at::kFloat), frequency);
    angles_ = {angle.cos(), angle.sin()};
    if (dtype_ == DType::kBFloat16) {
      angles_ = {angles_.cosine.to(at::kBFloat16).to(at::kFloat),
                 angles_.sine.to(at::kBFloat16).to(at::kFloat)};
    }
  }
  return {angles_.cosine.narrow(0, first, positions), angles_.sine.narrow(0, first, positions)};
}

Heads SplitAndRotate(const at::Tensor& fused, int64_t heads, const RotaryTable::Angles& angles) {
  ZEROD_CHECK(fused.is_contiguous() && fused.dim() == 3, "fused projection of ", fused.dim(),
              " dimensions");
  ZEROD_CHECK(fused.scalar_type() == at::kFloat || fused.scalar_type() == at::kBFloat16,
              "fused projection of ", fused.scalar_type());
  ZEROD_CHECK(angles.cosine.size(0) == fused.size(1), "angles for ", angles.cosine.size(0),
              " positions, not ", fused.size(1));
  const variable_list parts =
      SplitAndRotateFunction::apply(fused, heads, angles.cosine, angles.sine);
  return {parts[0], parts[1], parts[2]};
}

}  // namespace zerod::neox
