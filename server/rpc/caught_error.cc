#include "server/rpc/caught_error.h"

#include <exception>

namespace zerod {

Error CaughtError() {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, Concat("unexpected failure in zerod: ", error.what()));
  } catch (...) {
    return Error(ErrorCode::kInternal, "unexpected failure in zerod of unknown kind");
  }
}

}  // namespace zerod
