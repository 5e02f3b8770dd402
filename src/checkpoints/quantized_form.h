#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "base/parts/registry.h"
#include "quant/nf4.h"
#include "tensor/tensor.h"

// Model folders whose files have codes and scales of matrices in place of their values. How they hold them is
// a form, which a folder's quantization_config names as quant_method; each form is a room of src/foreign.
namespace temper::checkpoints {

class ModelFolder;
class MatrixWriter;  // matrix_writer.h

// One of the model's tensors in files, as a matrix.
struct QuantizedMatrix {
  std::string name;  // as files call plain values: "model.layers.0.mlp.up_proj.weight"
  int64_t rows = 0, columns = 0;

  // "model.layers.0.mlp.up_proj" and an ending: ".weight_scale". A name that does not end with ".weight"
  // stays whole.
  std::string part(std::string_view ending) const;
};

// How files say that values which pass are rounded.
struct RoundedValues {
  std::string format = {};  // of quant::formats()
  bool by_token = false;    // each row has a scale of its own, found in each pass
  bool symmetric = true;    // of integers: there is no zero point
  bool dynamic = false;     // passes find the ends of ranges; otherwise:
  float amax = 0;           // what the file's scale is of, the upper end of a range
  float low = 0;            // the lower end, where there is a zero point
};

// What of a module besides its matrix is rounded.
struct RoundedActivations {
  std::optional<RoundedValues> input = {};
  std::string unread = {};                 // what files say of inputs, where this program cannot round so
  std::optional<RoundedValues> kept = {};  // the keys or values that it gives, as attention keeps them
  Tensor pre_quant_scale =
      {};  // [columns] float32: what inputs are multiplied by before they are rounded, and
           // divided by afterwards, as rows() has them in the matrix; undefined: none
};

class QuantizedForm {
 public:
  virtual ~QuantizedForm() = default;

  virtual std::string name() const = 0;  // as users know it: "modelopt NVFP4"
  // The tensors of the folder that belong to a matrix, those without meaning for its values too; none where
  // files have its plain values.
  virtual std::vector<std::string> parts(const ModelFolder& folder, const QuantizedMatrix& matrix) const = 0;
  // What is wrong with a matrix that has parts: a sentence for each of them that is missing or unlike what
  // the form has.
  virtual std::vector<std::string> misfits(const ModelFolder& folder,
                                           const QuantizedMatrix& matrix) const = 0;
  // Values of `count` rows from `first` on of a matrix without misfits: float32 [count, columns], compact,
  // tag workspace; codes times scales, each operation rounded to float32. Codes that mean NaN become NaN.
  // What was read of the file may be let go (ModelFolder::release).
  virtual Tensor rows(const ModelFolder& folder, const QuantizedMatrix& matrix, int64_t first,
                      int64_t count) const = 0;
  // Of a matrix without misfits what else files say is rounded, so that a model computes what was trained.
  virtual RoundedActivations activations(const ModelFolder& folder, const QuantizedMatrix& matrix) const;
  // A matrix without misfits as quant/nf4.h keeps it, on the CPU, with the codes and magnitudes that files
  // have; nothing where they have others.
  virtual std::optional<quant::Nf4> nf4(const ModelFolder& folder, const QuantizedMatrix& matrix) const;
  // What writes a matrix without misfits in this form; null: it is only read.
  virtual std::unique_ptr<const MatrixWriter> writer(const ModelFolder& folder,
                                                     const QuantizedMatrix& matrix) const;
};

// The quant_method of a quantization_config that this program reads. An Error "[where] …" that lists those it
// reads otherwise. "mxfp4" is read apart (checkpoints/mxfp4.h).
std::string readable_quant_method(const Json& quantization_config, const std::string& where);

// The form of a folder, by quantization_config in config.json, or by hf_quant_config.json,
// quantize_config.json (AutoGPTQ's) or quant_config.json (AutoAWQ's) where that says nothing; null: its files
// have plain values.
std::shared_ptr<const QuantizedForm> quantized_form_of(const std::string& folder);
// An Error "[quantize] …" where the folder is quantized, with experts in MXFP4, too.
void check_not_quantized(const std::string& folder);

// How folders of one quant_method are read. A room of src/foreign registers it by that name.
struct QuantizedFormReader {
  // Of a quantization_config, or of what `file` has under `key`. An Error "[where] …" for what it cannot
  // read.
  using Make = std::shared_ptr<const QuantizedForm>(const Json& config, const std::string& where);
  Make* make = nullptr;
  // A file next to config.json in which tools write the same; "": there is none. `key` is "" where the file
  // as a whole is the configuration.
  std::string_view file = {}, key = {};
  // Of config.json's configuration, completed by what `file` alone has, where both are there. An Error
  // "[where] …" where the two contradict each other. Null: config.json alone counts.
  using Complete = Json(Json config, const std::string& where, const Json& extra,
                        const std::string& where_extra);
  Complete* complete = nullptr;
};
inline Registry<QuantizedFormReader>& quantized_forms() { return registry<QuantizedFormReader>(); }

}  // namespace temper::checkpoints
