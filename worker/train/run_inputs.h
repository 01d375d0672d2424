#pragma once

#include <memory>

#include "worker/neox/checkpoint.h"
#include "worker/neox/config.h"
#include "worker/neox/data.h"
#include "worker/train/train_options.h"
#include "worker/train/vocabulary.h"

namespace zerod::train {

/// All that a run reads from files. It is read before the daemon is asked for anything, so that bad
/// files are found without it.
struct RunInputs {
  TrainOptions options;  ///< what was left to the files is filled in: steps, document_end, ...
  neox::Config config;
  std::unique_ptr<neox::TokenSource> tokens;
  std::unique_ptr<neox::Checkpoint> weights;  ///< null: new weights
  std::unique_ptr<Vocabulary> vocabulary;     ///< null: ids have no text
  std::vector<int64_t> prompt;                ///< of the sample; empty: there is none
  bool evaluates = false;                     ///< whether something is held out

  /// Throws Error: kInvalidArgument for options that don't fit the files, else as the files'
  /// readers.
  static RunInputs Read(const TrainOptions& options);
};

}  // namespace zerod::train
