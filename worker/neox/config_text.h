#pragma once

#include <optional>
#include <string>

#include "proto/contract/plan.h"

namespace zerod::neox {

/// A config.json for weights stored in `dtype` (none: as the text says), from another one: the text
/// itself unless something must change. Also names the class that loads a language model, if
/// nothing else did. `where` names the text in messages. Throws Error(kDataLoss) if it isn't JSON.
std::string ConfigText(const std::string& text, const std::string& where,
                       std::optional<DType> dtype);

}  // namespace zerod::neox
