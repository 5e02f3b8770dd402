// The only file that sees cuDNN's front end: its headers take longer to compile than the rest of the room.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include "backends/cudnn/plan.h"

#include <cudnn_frontend.h>

#include <map>
#include <unordered_map>

#include "base/error.h"
#include "device/cuda/stream.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // of the library; set before anything is called
}

namespace temper::backends::cudnn {
namespace {

namespace fe = cudnn_frontend;
using Attributes = std::shared_ptr<fe::graph::Tensor_attributes>;

// The front end passes the library's own status on only within its message.
device::Failure failure_of(fe::error_t error) {
  return error.get_message().find("ALLOCATION_FAILED") == std::string::npos ? device::Failure::kUnexplained
                                                                            : device::Failure::kOutOfMemory;
}

void check(fe::error_t error, const PlanKey& key) {
  if (error.is_good()) return;
  const std::string what = fmt::format(
      "[cudnn] attention {} of {} × {} queries and {} keys, {} heads over {}, head_dim {}, value_dim {}, "
      "window "
      "{}, {}: {}",
      key.pass == Pass::kBackward ? "backward" : "forward", key.batch, key.queries, key.keys, key.heads,
      key.kv_heads, key.head_dim, key.value_dim, key.window, key.ragged ? "ragged" : "plain",
      error.get_message());
  if (error.get_code() == fe::error_code_t::GRAPH_NOT_SUPPORTED)
    fail("{}; choose another attn_implementation", what);
  device::throw_failure_of_library(failure_of(error), "attention through cuDNN", what);
}

int64_t id_of(int slot) { return slot + 1; }  // of a tensor in a graph; 0 might mean none

fe::DataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return fe::DataType_t::BFLOAT16;
    case DType::kF16:
      return fe::DataType_t::HALF;
    case DType::kF32:
      return fe::DataType_t::FLOAT;
    case DType::kI64:
      return fe::DataType_t::INT64;
    default:
      return fe::DataType_t::INT32;
  }
}

// Builds one graph: its tensors, then the one operation on them.
class Builder {
 public:
  Builder(const PlanKey& key, fe::graph::Graph& graph) : key_(key), graph_(graph) {
    if (!key.ragged) return;
    lengths_q_ = list(kLengthsQ, key.batch, DType::kI32);
    lengths_k_ = list(kLengthsK, key.batch, DType::kI32);
    offsets_q_ = list(kOffsetsQ, key.batch + 1, key.offsets);
    offsets_k_ = list(kOffsetsK, key.batch + 1, key.offsets);
    offsets_y_ = key.one_width() ? offsets_q_ : list(kOffsetsY, key.batch + 1, key.offsets);
    offsets_v_ = key.one_width() ? offsets_k_ : list(kOffsetsV, key.batch + 1, key.offsets);
    if (key.pass != Pass::kInference) offsets_lse_ = list(kOffsetsLse, key.batch + 1, key.offsets);
  }

  void forward() {
    const bool wants_lse = key_.pass == Pass::kForward;
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(wants_lse);
    set_mask(attributes);
    auto [y, lse] = graph_.sdpa(tensor(kQ), tensor(kK), tensor(kV), attributes);
    describe(y, kY);
    y->set_output(true);
    if (!wants_lse) return;
    describe(lse, kLse);
    lse->set_output(true);
  }

  void backward() {
    auto attributes = fe::graph::SDPA_backward_attributes().set_name("attention backward");
    attributes.set_deterministic_algorithm(key_.deterministic);
    if (key_.ragged) {
      attributes.set_max_total_seq_len_q(key_.total_queries);
      attributes.set_max_total_seq_len_kv(key_.total_keys);
    }
    set_mask(attributes);
    auto [dq, dk, dv] = graph_.sdpa_backward(tensor(kQ), tensor(kK), tensor(kV), tensor(kY), tensor(kDy),
                                             tensor(kLse), attributes);
    for (const auto& [grad, slot] : {std::pair{dq, kDq}, {dk, kDk}, {dv, kDv}}) {
      describe(grad, slot);
      grad->set_output(true);
    }
  }

 private:
  template <class T>
  void set_mask(T& attributes) {
    attributes.set_attn_scale(key_.scale);
    attributes.set_diagonal_alignment(key_.bottom_right ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                        : fe::DiagonalAlignment_t::TOP_LEFT);
    attributes.set_diagonal_band_right_bound(0);
    if (key_.window > 0) attributes.set_diagonal_band_left_bound(static_cast<int>(key_.window));
    if (key_.ragged) attributes.set_padding_mask(true).set_seq_len_q(lengths_q_).set_seq_len_kv(lengths_k_);
  }

  Attributes list(Slot slot, int64_t count, DType dtype) {
    return graph_.tensor(fe::graph::Tensor_attributes()
                             .set_uid(id_of(slot))
                             .set_dim({count, 1, 1, 1})
                             .set_stride({1, 1, 1, 1})
                             .set_data_type(type_of(dtype)));
  }

  Attributes tensor(Slot slot) {
    auto made = graph_.tensor(fe::graph::Tensor_attributes());
    describe(made, slot);
    return made;
  }

  void describe(const Attributes& tensor, Slot slot) {
    tensor->set_uid(id_of(slot));
    if (slot == kLse) return describe_lse(tensor);
    const bool of_keys = slot == kK || slot == kV || slot == kDk || slot == kDv;
    const bool of_values = slot == kV || slot == kDv || slot == kY || slot == kDy;
    const int64_t heads = of_keys ? key_.kv_heads : key_.heads, length = of_keys ? key_.keys : key_.queries;
    const int64_t dim = of_values ? key_.value_dim : key_.head_dim;
    const int64_t stride = token_stride(slot, heads * dim);
    tensor->set_dim({key_.batch, heads, length, dim})
        .set_stride({length * stride, dim, stride, 1})
        .set_data_type(type_of(key_.dtype));
    if (!key_.ragged) return;
    if (of_values)
      tensor->set_ragged_offset(of_keys ? offsets_v_ : offsets_y_);
    else
      tensor->set_ragged_offset(of_keys ? offsets_k_ : offsets_q_);
  }

  void describe_lse(const Attributes& tensor) {
    tensor->set_dim({key_.batch, key_.heads, key_.queries, 1}).set_data_type(fe::DataType_t::FLOAT);
    if (key_.ragged)
      tensor->set_stride({key_.queries * key_.heads, 1, key_.heads, 1}).set_ragged_offset(offsets_lse_);
    else
      tensor->set_stride({key_.heads * key_.queries, key_.queries, 1, 1});
  }

  int64_t token_stride(Slot slot, int64_t compact) const {
    if (key_.ragged) return compact;
    switch (slot) {
      case kQ:
        return key_.q_stride;
      case kK:
        return key_.k_stride;
      case kV:
        return key_.v_stride;
      case kDq:
        return key_.dq_stride;
      case kDk:
        return key_.dk_stride;
      case kDv:
        return key_.dv_stride;
      default:
        return compact;
    }
  }

  const PlanKey& key_;
  fe::graph::Graph& graph_;
  Attributes lengths_q_, lengths_k_, offsets_q_, offsets_k_, offsets_y_, offsets_v_, offsets_lse_;
};

class GraphPlan final : public Plan {
 public:
  GraphPlan(const PlanKey& key, const Session& session) : key_(key), handle_(session.handle) {
    graph_.set_io_data_type(type_of(key.dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(session.capability)
        .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
    Builder builder(key_, graph_);
    if (key.pass == Pass::kBackward)
      builder.backward();
    else
      builder.forward();
    check(graph_.build(handle_, {fe::HeurMode_t::A}), key_);
    check(graph_.get_workspace_size(workspace_bytes_), key_);
  }

  int64_t workspace_bytes() const override { return workspace_bytes_; }

  void run(const Pointers& pointers, void* workspace) const override {
    std::unordered_map<int64_t, void*> by_id;
    for (int slot = 0; slot < kNumSlots; ++slot)
      by_id.emplace(id_of(slot), pointers[static_cast<size_t>(slot)]);
    check(graph_.execute(handle_, by_id, workspace), key_);
  }

 private:
  PlanKey key_;
  cudnnHandle_t handle_;
  fe::graph::Graph graph_;
  int64_t workspace_bytes_ = 0;
};

}  // namespace

const Plan& plan_of(const PlanKey& key, const Session& session) {
  // Never destroyed: the driver may be gone when static objects go.
  static auto& plans = *new std::map<PlanKey, std::unique_ptr<const Plan>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::unique_ptr<const Plan>& found = plans[key];
  if (found == nullptr) {
    fe::cudnn_dlhandle = library().opened;
    found = std::make_unique<GraphPlan>(key, session);
  }
  return *found;
}

}  // namespace temper::backends::cudnn
