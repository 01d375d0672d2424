#include "proto/contract/status.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

namespace zerod {
namespace {

Error ThrownBy(const grpc::Status& status) {
  try {
    ThrowIfError(status);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(ErrorCode::kInternal, "");
}

TEST(Status, EveryErrorCodeComesBackAsItself) {
  std::set<grpc::StatusCode> codes;
  for (int i = 0; i <= static_cast<int>(ErrorCode::kInternal); ++i) {
    const Error error(static_cast<ErrorCode>(i), Concat("reason ", i));
    const grpc::Status status = ToStatus(error);
    EXPECT_TRUE(codes.insert(status.error_code()).second) << ErrorCodeName(error.code());
    EXPECT_EQ(ThrownBy(status).code(), error.code());
    EXPECT_STREQ(ThrownBy(status).what(), error.what());
  }
}

TEST(Status, OkThrowsNothing) { EXPECT_NO_THROW(ThrowIfError(grpc::Status::OK)); }

TEST(Status, CodesThatOnlyTheLibraryUsesBecomeTheNearest) {
  using grpc::StatusCode;
  EXPECT_EQ(ThrownBy({StatusCode::CANCELLED, ""}).code(), ErrorCode::kAborted);
  EXPECT_EQ(ThrownBy({StatusCode::UNIMPLEMENTED, ""}).code(), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(ThrownBy({StatusCode::OUT_OF_RANGE, ""}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(ThrownBy({StatusCode::UNKNOWN, ""}).code(), ErrorCode::kInternal);
}

TEST(Status, ALongMessageIsCutToWhatMetadataHolds) {
  const grpc::Status status = ToStatus(Error(ErrorCode::kAborted, std::string(100'000, 'm')));
  EXPECT_LE(status.error_message().size() * 3, 8192u);
  EXPECT_GE(status.error_message().size(), 1000u);
}

}  // namespace
}  // namespace zerod
