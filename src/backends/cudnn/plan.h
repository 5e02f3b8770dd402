#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <memory>

#include "backends/cudnn/library.h"
#include "tensor/dtype.h"

namespace temper::backends::cudnn {

enum class Pass : uint8_t { kInference, kForward, kBackward };

// Everything that cuDNN compiles into a plan. Tokens' strides are in elements; y, dy and what a ragged plan
// reads and writes are compact.
struct PlanKey {
  int device = 0;
  Pass pass = Pass::kForward;
  DType dtype = DType::kBF16;
  bool deterministic = true;  // backward
  int64_t batch = 0, heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  int64_t queries = 0, keys = 0;  // of the longest document
  float scale = 1;
  int64_t window = 0;  // 0: no limit
  // Of a plain batch: documents of one length, one after the other.
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  // Of documents of different lengths, which start where offsets on the device say.
  bool ragged = false;
  bool bottom_right = false;                  // some documents have more keys than queries
  DType offsets = DType::kI32;                // kI64 where they need it
  int64_t total_queries = 0, total_keys = 0;  // of all documents, at most

  bool one_width() const { return head_dim == value_dim; }
  auto operator<=>(const PlanKey&) const = default;
};

// What a plan reads and writes; a plan looks only at those it knows.
enum Slot : int {
  kQ,
  kK,
  kV,
  kY,
  kLse,  // [documents, heads, length], ragged: [tokens, heads]
  kDy,
  kDq,
  kDk,
  kDv,
  kLengthsQ,  // [batch] int32
  kLengthsK,
  kOffsetsQ,  // [batch + 1], of q and its gradient, in elements
  kOffsetsK,  // of k and its gradient
  kOffsetsY,  // of y and its gradient; as of q where values are as wide as keys
  kOffsetsV,  // of v and its gradient; as of k
  kOffsetsLse,
  kNumSlots
};
using Pointers = std::array<void*, kNumSlots>;

class Plan {
 public:
  virtual ~Plan() = default;
  virtual int64_t workspace_bytes() const = 0;
  virtual void run(const Pointers& pointers, void* workspace) const = 0;
};

// Built when it is first asked for, which takes a moment, and kept. The caller holds the session's mutex.
const Plan& plan_of(const PlanKey& key, const Session& session);

}  // namespace temper::backends::cudnn
