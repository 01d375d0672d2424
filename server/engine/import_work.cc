#include "server/engine/import_work.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <span>

#include "proto/contract/error.h"
#include "server/engine/lane.h"
#include "server/layout/shard_range.h"
#include "server/store/element_cast.h"
#include "server/store/model_file.h"

namespace zerod {
namespace {

constexpr int64_t kPieceNumel = 256 * 1024;  // what is read at once: 1 MiB at most

using Files = std::map<std::string, ModelFile>;  // by path

/// Runs `read`, which concerns one tensor; its errors say where they come from.
template <typename Work>
void ForTensor(const ImportWork& work, const LayerStore& layer, size_t tensor, Work&& read) {
  try {
    read();
  } catch (const Error& error) {
    throw Error(error.code(),
                Concat("node ", work.topology.node, " can't import tensor '",
                       layer.plan().spec.tensors[tensor].name, "' of layer '", layer.name(),
                       "' from ", work.ranges[tensor].path, ": ", error.what()));
  }
}

Files OpenFiles(const ImportWork& work, const LayerStore& layer) {
  Files files;
  for (size_t i = 0; i < work.ranges.size(); ++i) {
    const FileRange& range = work.ranges[i];
    ForTensor(work, layer, i, [&] {
      if (!files.contains(range.path)) files.emplace(range.path, ModelFile(range.path, work.roots));
      const int64_t file_bytes = files.at(range.path).size_bytes();
      const int64_t tensor_bytes = layer.plan().tensors[i].numel * SizeOf(range.dtype);
      if (range.offset_bytes <= file_bytes && tensor_bytes <= file_bytes - range.offset_bytes) {
        return;
      }
      throw Error(ErrorCode::kDataLoss,
                  Concat("it needs ", tensor_bytes, " bytes from byte ", range.offset_bytes,
                         " on, but the file has ", file_bytes, " on this node; copy it again"));
    });
  }
  return files;
}

/// Reads and converts the parts of one shard, piece by piece.
class ShardReader {
 public:
  ShardReader(const LayerStore& layer, int chunk, int local_rank)
      : layer_(layer), plan_(layer.plan().chunks[chunk]), chunk_(chunk), local_rank_(local_rank) {}

  void Read(const ModelFile& file, const FileRange& range, const TensorPart& piece) {
    const int64_t element_bytes = SizeOf(range.dtype);
    const int64_t offset_bytes = range.offset_bytes + piece.tensor_begin_numel * element_bytes;
    auto part = [&](auto shard) { return shard.subspan(piece.shard_begin_numel, piece.numel); };
    const bool narrow = plan_.dtype == DType::kBFloat16;
    if (narrow && !plan_.trainable && range.dtype == DType::kBFloat16) {
      const auto parameters = part(layer_.Bf16Parameters(chunk_, local_rank_));
      file.Read(offset_bytes, std::as_writable_bytes(parameters));
      return;
    }
    std::span<float> values;
    if (narrow && !plan_.trainable) {
      wide_.resize(piece.numel);
      values = wide_;
    } else {
      values = part(layer_.Master(chunk_, local_rank_));
    }
    if (range.dtype == DType::kFloat32) {
      file.Read(offset_bytes, std::as_writable_bytes(values));
    } else {
      raw_.resize(piece.numel * element_bytes);
      file.Read(offset_bytes, raw_);
      WidenTo(values, range.dtype, raw_);
    }
    if (narrow) RoundToBf16(part(layer_.Bf16Parameters(chunk_, local_rank_)), values);
  }

 private:
  const LayerStore& layer_;
  const ChunkPlan& plan_;
  const int chunk_;
  const int local_rank_;
  std::vector<std::byte> raw_;
  std::vector<float> wide_;
};

void ImportShard(const ImportWork& work, const LayerStore& layer, const Files& files,
                 int local_rank) {
  const int rank = work.topology.FirstRank(work.topology.node) + local_rank;
  for (size_t chunk = 0; chunk < layer.plan().chunks.size(); ++chunk) {
    ShardReader reader(layer, static_cast<int>(chunk), local_rank);
    for (TensorPart part : PartsOfShard(layer.plan(), static_cast<int>(chunk), rank)) {
      const FileRange& range = work.ranges[part.tensor];
      ForTensor(work, layer, part.tensor, [&] {
        for (int64_t left = part.numel; left > 0 && !work.cancelled; left -= part.numel) {
          part.numel = std::min(kPieceNumel, left);
          reader.Read(files.at(range.path), range, part);
          part.tensor_begin_numel += part.numel;
          part.shard_begin_numel += part.numel;
        }
      });
    }
  }
}

}  // namespace

void ImportShards(const ImportWork& work, const LayerStore& layer) {
  const Files files = OpenFiles(work, layer);
  std::vector<std::exception_ptr> failures(work.topology.LocalRanks());
  {
    std::vector<std::unique_ptr<Lane>> lanes;  // joined at the end of this block
    for (int local = 0; local < work.topology.LocalRanks(); ++local) {
      lanes.push_back(std::make_unique<Lane>(Concat("import-", local)));
      lanes.back()->Post([&, local] {
        try {
          ImportShard(work, layer, files, local);
        } catch (...) {
          failures[local] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace zerod
