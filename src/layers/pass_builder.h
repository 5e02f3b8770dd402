#pragma once
#include "layers/decoder.h"

namespace temper::layers {

// Makes what modules read of a pass, of what a decoder was asked to compute. It takes down what captured work
// relies on (tensor/host_inputs.h), and needs a scope of HostInputs.
class PassBuilder {
 public:
  // `rope` may grow. `routers`: how many the model has.
  PassBuilder(const DecoderConfig& config, const ModelRanks& ranks, const ContextParts& context,
              RopeTableSet& rope, size_t routers, Device device)
      : config_(config), ranks_(ranks), context_(context), rope_(rope), routers_(routers), device_(device) {}

  // An Error where the model, of this dtype, cannot compute such a pass.
  void check(const DecoderInput& input, DType dtype) const;
  void check(const BatchInput& input, DType dtype) const;
  // Over documents.
  Pass of(const DecoderInput& input, const Decoder::Options& options) const;
  // Over sequences whose states lie in pages. Both have to outlive the pass.
  Pass of(const BatchInput& input, const PagedStates& pages) const;

 private:
  // `trace` and, where a run balances by force, the experts of its tokens.
  void add_routers(Pass& pass, const std::shared_ptr<RouterTrace>& trace, int64_t tokens) const;
  void add_documents(Pass& pass, const DecoderInput& input) const;
  std::shared_ptr<const ContextPass> context_pass(const DecoderInput& input,
                                                  const std::vector<AdapterRows>& adapters) const;
  void check_media(bool three_positions, const PlacedRows& placed, int64_t tokens, DType dtype) const;

  const DecoderConfig& config_;
  const ModelRanks& ranks_;
  const ContextParts& context_;
  RopeTableSet& rope_;
  size_t routers_;
  Device device_;
};

}  // namespace temper::layers
