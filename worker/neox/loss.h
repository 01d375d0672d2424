#pragma once

#include <ATen/core/Tensor.h>

namespace zerod::neox {

/// Cross-entropy in nats: `logits` [..., V] float32 against token ids `targets` of the leading
/// shape, int64, all in the vocabulary or negative. Returns a scalar: the sum over the targets that
/// aren't negative, divided by the number of all targets; without negative ones the mean. Saves
/// memory and time over the operators of LibTorch: the backward turns the logits into their
/// gradient in place. So nobody may read `logits` after the backward, and a second backward through
/// the same graph throws c10::Error.
at::Tensor CrossEntropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace zerod::neox
