#include "worker/train/data_place.h"

#include <gtest/gtest.h>

namespace zerod::train {
namespace {

constexpr DataPlace kPlace{.batch = 8, .seq = 64, .train_tokens = 1000, .shuffle_seed = 3};

TEST(DataPlace, DoesNotDifferFromItselfAndWhatIsUnknown) {
  EXPECT_EQ(kPlace.DifferenceFrom(kPlace.ToText()), "");
  EXPECT_EQ(kPlace.DifferenceFrom(""), "");
  EXPECT_EQ(kPlace.DifferenceFrom("rank 0 after step 3"), "");
}

TEST(DataPlace, NamesWhatIsOtherThanBefore) {
  DataPlace now = kPlace;
  now.batch = 4;
  now.shuffle_seed.reset();
  EXPECT_EQ(now.DifferenceFrom(kPlace.ToText()),
            "--batch was 8 and is 4, --shuffle was 3 and is \"off\"");
}

}  // namespace
}  // namespace zerod::train
