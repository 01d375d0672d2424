#pragma once

#include "proto/contract/error.h"

namespace zerod {

/// The exception that is being handled, as an Error: an Error stays what it is, anything else
/// becomes kInternal with its text. Call it in a catch block only.
Error CaughtError();

}  // namespace zerod
