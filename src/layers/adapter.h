#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/parameters/parameters.h"
#include "layers/token_cut.h"
#include "weights/lora.h"

namespace temper::layers {

// One adapter of a frozen model: its parameters, and what they do to the model's. A model may have any number
// of adapters.
class Adapter {
 public:
  // Memory for what the plan says, uninitialized. check_products has passed.
  Adapter(const LoraPlan& plan, LoraConfig config, const ParameterStore& base);

  const LoraConfig& config() const { return config_; }
  void set_dropout(double dropout) { config_.dropout = dropout; }
  const LoraPlan& plan() const { return plan_; }  // its specs are the model's
  ParameterStore& parameters() { return parameters_; }
  const ParameterStore& parameters() const { return parameters_; }

  int64_t num_update_elements() const;  // of all A and B

  // As PEFT does: A uniform in ±1/sqrt(in) and B zero; of an embedding A zero and B normal; copies are the
  // model's. The model computes what it did without the adapter. Keyed by (seed, parameter, element).
  void initialize(const ParameterStore& base, uint64_t seed);

  // The low-rank update of one of the model's weights, or null.
  struct Slice {
    int64_t column = 0;  // the first of the weight's rows that it updates
    size_t b = 0;        // in parameters()
    float scale = 1;
  };
  struct Update {
    size_t a = 0;  // in parameters()
    std::vector<Slice> slices;
  };
  const Update* update_of(const BoundWeight& weight) const {
    if (!weight.exists()) return nullptr;
    const auto& update = updates_[weight.id()];
    return update ? &*update : nullptr;
  }

  // Whether the adapter trains a copy of the model's weight, or of a part of it.
  bool replaces(const BoundWeight& weight) const { return weight.exists() && !copies_[weight.id()].empty(); }
  // What the adapter's rows use: the copy, put together with the model's where it is of a part.
  primitives::Matrix weight(Tape& tape, const BoundWeight& base) const;

 private:
  LoraConfig config_;
  LoraPlan plan_;
  ParameterStore parameters_;
  std::vector<std::optional<Update>> updates_;  // by BoundWeight::id
  struct Piece {
    int64_t row = 0, rows = 0;
    size_t parameter = 0;
  };
  std::vector<std::vector<Piece>> copies_;  // the same, by row
};

// Consecutive rows (tokens) of a pass and whose they are.
struct AdapterRows {
  const Adapter* adapter = nullptr;  // null: the model alone
  int64_t rows = 0;
  // For dropout, which is keyed by (seed, step, row, element): rows are counted through all passes of the
  // adapter's step, so that they do not depend on what else is in a pass.
  bool training = false;
  uint64_t seed = 0, step = 0;
  int64_t first_row = 0;
  // Where the rows are, counted from first_row, where they do not follow one another.
  std::vector<TokenRange> pieces = {};

  // Some consecutive ones of them, which may reach beyond the last.
  AdapterRows part(int64_t first, int64_t count) const;
  // Of a part of a pass that is all of them, those of a context rank.
  AdapterRows own(const TokenCut& cut) const;
};

}  // namespace temper::layers
