#pragma once
#include <memory>
#include <span>
#include <vector>

#include "base/json/json.h"
#include "layers/binding.h"
#include "layers/tower_weights.h"

// A tower reads pictures and gives rows that stand among the embeddings of a text. Rooms of src/towers are
// the kinds.
namespace temper::layers {

// The sizes of a picture, or of a video, in patches.
struct PatchGrid {
  int32_t frames = 1;  // of a video: patches in time
  int32_t rows = 0, columns = 0;

  int64_t of_frame() const { return int64_t{rows} * columns; }
  int64_t patches() const { return frames * of_frame(); }
  bool operator==(const PatchGrid&) const = default;
};

struct TowerInput {
  // [patches, values of a patch] float32, on the CPU: of all pictures one after the other, in the order of
  // the family's preprocessing.
  Tensor patches;
  std::vector<PatchGrid> grids;  // of each picture or video
};

struct TowerOptions {
  bool frozen = false;       // nothing is recorded, whether or not the parameters have gradients
  bool checkpoint = false;   // each block is computed again in backward instead of keeping its activations
  Tensor* hidden = nullptr;  // gets the rows before the merger, [patches, width]; null: they are not kept
};

// Names the ops of a tower's modules.
class TowerOps {
 public:
  explicit TowerOps(OpScope& ops, std::string scope = {}) : ops_(ops), scope_(std::move(scope)) {}
  // Of a part whose names begin so behind those of this scope.
  TowerOps within(const std::string& part) const { return TowerOps(ops_, scope_ + part); }

  DType dtype() const { return ops_.dtype(); }
  template <class Op>
  void use(const std::string& module, const typename Op::Signature& signature) const {
    ops_.use<Op>(scope_ + module, signature);
  }
  void linear(const std::string& module, int64_t in, int64_t out) const {  // which has a bias
    ops_.linear(scope_ + module, in, out, true);
  }

 private:
  OpScope& ops_;
  std::string scope_;
};

// What stands in the text, in the order of the pictures.
struct SeenRows {
  Var merged;  // [tokens, text width]
  // Of the same shape each: what is added behind the text's first, second, … layer. Empty where the family
  // has none.
  std::vector<Var> deepstack = {};
};

// A tower with its kernels and parameters.
class BoundTower {
 public:
  virtual ~BoundTower() = default;
  virtual SeenRows forward(Tape& tape, const TowerInput& input, const TowerOptions& options) const = 0;
};

// A tower as a configuration describes it.
class Tower {
 public:
  virtual ~Tower() = default;
  virtual void declare(TowerWeights& weights) const = 0;
  virtual void name_ops(const TowerOps& ops) const = 0;
  virtual std::unique_ptr<BoundTower> bind(const Binding& binding) const = 0;
  // Of the rows of a text that a picture takes; an Error where its grid cannot be.
  virtual int64_t tokens(const PatchGrid& grid) const = 0;
  // Of the matrix products of one forward pass (a multiply-add counts two).
  virtual double flops(std::span<const PatchGrid> grids) const = 0;
  // All that decides what it computes, as keys of vision_config where there is one.
  virtual Json::Object describe() const = 0;
};

}  // namespace temper::layers
