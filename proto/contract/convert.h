#pragma once

#include <cstdint>

#include "proto/contract/error.h"
#include "proto/contract/operation.h"
#include "proto/contract/plan.h"
#include "proto/session.pb.h"

namespace zerod {

inline constexpr int kNameBytesMax = 512;
inline constexpr int kTensorsMax = 4096;  ///< of one layer
inline constexpr int kDimensionsMax = 8;  ///< of one tensor
inline constexpr int64_t kLayerNumelMax = int64_t{1} << 46;

/// Contract types to messages and back. FromMessage trusts nothing: whatever the sender wrote, the
/// result satisfies the contract's invariants or Error (kInvalidArgument) names the field.
///
/// Of an operation only the fields that its kind uses travel; the others come out as defaults.
void ToMessage(const LayerSpec& spec, v1::LayerSpec& message);
LayerSpec FromMessage(const v1::LayerSpec& message);

void ToMessage(const Operation& operation, v1::Operation& message);
Operation FromMessage(const v1::Operation& message);

/// A plan travels without the specification that it answers; `ticket` and `layer` of the message
/// are the caller's. FromMessage checks that every tensor of `spec` has its place inside a chunk.
void ToMessage(const LayerPlan& plan, v1::LayerPlan& message);
LayerPlan FromMessage(const v1::LayerPlan& message, const LayerSpec& spec);

void ToMessage(const Error& error, v1::Fault& message);
/// An unknown code becomes kInternal: the message still says what happened.
Error FromMessage(const v1::Fault& message);

}  // namespace zerod
