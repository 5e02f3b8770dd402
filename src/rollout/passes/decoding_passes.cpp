#include "rollout/passes/decoding_passes.h"

#include <algorithm>
#include <bit>

namespace temper::rollout {
namespace {

constexpr size_t kFewestPages = 16;  // of a pass's rows

}  // namespace

DecodingPasses::DecodingPasses(const layers::Decoder& model, const SequenceCache& cache, int64_t max_rows)
    : model_(model), cache_(cache), max_rows_(rows_of_pass(max_rows)) {}

DecodingPass& DecodingPasses::at(int64_t rows, size_t pages, const layers::Adapter* adapter,
                                 double log_prob_temperature) {
  const DecodingPass::Shape shape{rows_of_pass(rows),
                                  static_cast<int64_t>(std::bit_ceil(std::max(pages, kFewestPages))), adapter,
                                  log_prob_temperature};
  const Device device = model_.device();
  if (!arena_) {
    ids_ = Tensor::zeros({max_rows_}, DType::kI32, MemoryTag::kData, device);
    seen_ = Tensor::empty({max_rows_, model_.config().vocab_size}, DType::kU8, MemoryTag::kGraphs, device);
    arena_ = std::make_shared<Arena>(device, MemoryTag::kGraphs);
  }
  std::unique_ptr<DecodingPass>& pass = passes_[shape];
  if (pass == nullptr)
    pass = std::make_unique<DecodingPass>(
        DecodingSetup{model_, cache_.states(), cache_.spare_page(), cache_.spare_slot(), ids_, seen_, arena_},
        shape);
  return *pass;
}

void DecodingPasses::forget() {
  passes_.clear();
  arena_ = nullptr;
  ids_ = seen_ = {};
}

}  // namespace temper::rollout
