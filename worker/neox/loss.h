#pragma once

#include <ATen/core/Tensor.h>

namespace zerod::neox {

/// Mean cross-entropy in nats: `logits` [..., V] float32 against token ids `targets` of the leading
/// shape, int64, all in the vocabulary. Returns a scalar. Saves memory and time over the operators
/// of LibTorch: the backward turns the logits into their gradient in place. So nobody may read
/// `logits` after the backward, and a second backward through the same graph throws c10::Error.
at::Tensor CrossEntropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace zerod::neox
