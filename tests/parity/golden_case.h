#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "checkpoints/files/safetensors.h"
#include "models/model.h"

// A case is a model folder with a golden.safetensors next to its weights: what transformers computed
// (tools/oracles/make_model_goldens.py).
namespace temper::parity {

// tests/goldens, or what TEMPER_GOLDENS names.
std::string goldens_folder();
bool is_own_goldens();                  // tests/goldens
std::vector<std::string> case_names();  // the folders in it with a golden.safetensors
std::string model_type_of(const std::string& case_name);
bool is_built(const std::string& model_type);

struct Case {
  std::string name, kernels, device;
};
void PrintTo(const Case& c, std::ostream* out);
std::vector<Case> find_cases();  // each with eager and with fast kernels, on the CPU and on a GPU
std::string name_of(const testing::TestParamInfo<Case>& info);

std::vector<int32_t> ints(const Tensor& tensor);  // of int64

// Skipped where there is no GPU, and for families of another folder than tests/goldens that are not built.
class GoldenCase : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override;

  std::unique_ptr<models::Model> load(DType dtype) const;
  Tensor golden(const std::string& name) const { return golden_->tensor(name); }
  bool has_golden(const std::string& name) const { return golden_->find(name) != nullptr; }

  layers::DecoderInput input() const;
  // The labels moved one to the left, what each position predicts; and how many there are.
  std::vector<int32_t> targets(int64_t* count) const;
  // For a pass of the golden batch: in 16 bits a mixture's tokens take the way that they take in float32, as
  // near ties are decided by rounding.
  std::shared_ptr<layers::RouterTrace> routes(const models::Model& model) const;
  // Hidden states of each layer, then those after the final norm, then the logits.
  std::vector<Tensor> activations(const models::Model& model) const;
  // Forward and backward of the golden batch; gradients stay in the parameters, those of the load balancing
  // loss, too, where the model has one. Returns the loss without it.
  double run_step(models::Model& model, bool checkpoint_layers = false, double* balance_loss = nullptr) const;
  // What `of` finds for each parameter, cut into the weights of the Hugging Face file.
  void for_each_weight(const models::Model& model, const std::function<Tensor(size_t index)>& of,
                       const std::function<void(const std::string& name, const Tensor& found)>& check) const;
  // relative_error of every gradient is at most this; names begin with `prefix`.
  void expect_gradients(const models::Model& model, double tolerance,
                        const std::string& prefix = "grad.") const;
  // Below which a gradient's size does not lower what it is measured by.
  double least_scale(const std::string& name, const std::string& prefix) const;

  std::string folder_;
  std::optional<checkpoints::SafetensorsFile> golden_;
  HardwareFacts facts_;
};

}  // namespace temper::parity
