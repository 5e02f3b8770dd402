#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json/json.h"
#include "checkpoints/files/safetensors.h"
#include "checkpoints/quantized_form.h"
#include "weights/layout.h"

// Model folders as the Hugging Face libraries read and write them. Errors name the folder or file, what was
// found, what was expected and what to do.
namespace temper::checkpoints {

// A model folder's config.json; an Error that says so where the folder is an adapter's.
Json read_model_config(const std::string& folder);

// Of a path that is no folder: "is not a folder; expected …", for an error that names it before.
std::string no_model_folder(const std::string& path);

// config.json and the weights in model.safetensors, or in the shards that model.safetensors.index.json maps.
class ModelFolder {
 public:
  // Opens and checks every file: the index and its shards must agree on every tensor.
  static ModelFolder open(const std::string& path);
  // An adapter's folder: adapter_model.safetensors (checkpoints/adapter_folder.h); `base` is the model's
  // table.
  static ModelFolder open_adapter(const std::string& path, const WeightTable& base);

  // Of a model that also reads pictures, how its files name the text: here all names are as in tables
  // (weights/text_names.h). Nothing for models that read text alone.
  const std::optional<TextNames>& text_names() const { return text_names_; }
  std::string name_in_files(std::string_view name) const;
  const std::string& path() const { return path_; }
  const std::string& remedy() const { return remedy_; }      // when the weights are of something else
  const QuantizedForm* form() const { return form_.get(); }  // null: files have plain values
  Json config() const;                                       // config.json
  const std::vector<std::string>& names() const { return names_; }
  const TensorEntry* find(std::string_view name) const;           // null when absent
  Tensor tensor(std::string_view name) const;                     // see SafetensorsFile::tensor
  void release(std::string_view name, const Tensor& view) const;  // see SafetensorsFile::release

 private:
  void open_shards(const std::string& index_path);
  // `own_name` gives what a tensor is called here.
  void index_names(const std::function<std::string(const std::string& in_file)>& own_name);
  void read_text_names();
  [[noreturn]] void fail_without_weights() const;

  std::string path_, remedy_ = "use the config.json that belongs to these weights";
  std::shared_ptr<const QuantizedForm> form_;
  std::vector<SafetensorsFile> files_;
  std::optional<TextNames> text_names_;
  std::vector<std::string> names_;
  struct Place {
    size_t file;
    std::string name;  // there
  };
  const Place& place_of(std::string_view name) const;  // an Error where there is none
  std::unordered_map<std::string, Place> places_;
};

// The parameter's tensor: where to load to, or what to save.
using WeightTensors = std::function<Tensor(const WeightSpec&)>;

// What a quantized folder has codes of instead: a source of a parameter as a matrix; nothing where files have
// its plain values.
std::optional<QuantizedMatrix> quantized_matrix(const ModelFolder& folder, const WeightSpec& spec,
                                                const WeightSource& source);
int64_t count_quantized(const ModelFolder& folder, const WeightTable& table);  // of such matrices

// Fills each parameter's contiguous destination of spec.shape from its sources, [rows, spec.shape[1:]] each
// (or the transpose, where the spec says so), stacked along dimension 0; floating-point dtypes are converted,
// and codes of quantized folders are read as the float32 that they mean (quantized_form.h). Missing and
// unknown names and wrong shapes are one error that lists them, thrown before anything is loaded; NaN or
// infinity is one that names the tensor and the element.
void load_weights(const ModelFolder& folder, const WeightTable& table, const WeightTensors& destination);

// The same, handing over some rows at a time: `rows` are those of spec.shape from `first` on, as the file has
// them.
using TakeRows = std::function<void(const WeightSpec& spec, int64_t first, const Tensor& rows)>;
// A matrix that the folder has in NF4, as it is there, in place of its rows, of which the first one is
// `first`. False: it is not kept so, and the rows follow.
using TakeNf4 = std::function<bool(const WeightSpec& spec, int64_t first, const quant::Nf4& matrix)>;
// Only rows of which `layout` holds something are read. Where `take_nf4` is given, matrices in NF4 are
// offered, and of those that quantizers may target all rows are read where the layout holds some.
void load_rows(const ModelFolder& folder, const WeightTable& table, const Layout& layout,
               const TakeRows& take, const TakeNf4& take_nf4 = {});

// The folder's tensors that the table keeps (WeightTable::keep).
std::vector<std::string> kept_names(const ModelFolder& folder, const WeightTable& table);

// Of these one that is a quantized folder's codes, or belongs to some: it means nothing in a folder of
// numbers. "": there is none.
std::string kept_code(const ModelFolder& folder, const WeightTable& table);

// Whether the folder holds parameters as stacked tensors (WeightTable::set_stacked), and whether as
// transposes (set_stacked_transposed). Where an expert's matrix is square, another tensor's shape tells.
bool holds_stacked(const ModelFolder& folder, const WeightTable& table);
bool holds_transposed(const ModelFolder& folder, const WeightTable& table);

// What the folder has for the parameters that are kept in a dtype of their own and are no buffers
// (WeightTable::set_read_dtypes).
std::unordered_map<std::string, DType> read_dtypes(const ModelFolder& folder, const WeightTable& table);

// Only the checks of load_weights.
void check_weights(const ModelFolder& folder, const WeightTable& table);

// Parameters that files hold in another form than their values.
class EncodedParameters {
 public:
  virtual ~EncodedParameters() = default;
  // The tensors of files in place of the parameter's sources; none: it is written as it is.
  virtual std::vector<TensorInfo> list(const WeightSpec& spec) const = 0;
  // Those tensors, in the order of list(), of the parameter's value on the host.
  virtual std::vector<Tensor> encode(const WeightSpec& spec, const Tensor& value) const = 0;
};

struct SaveOptions {
  std::optional<DType> dtype = {};  // what floating-point weights become; absent: they stay as they are
  int64_t max_shard_bytes = 5'000'000'000;     // of tensors per file
  std::string original = {};                   // the folder that extra files are copied from; "": none
  const ModelFolder* kept = nullptr;           // has the tensors that the table keeps; null: there are none
  const EncodedParameters* encoded = nullptr;  // null: all are written as they are
  std::vector<std::pair<std::string, Json>> json_files = {};  // further files, by name
  std::vector<std::string> extra_files = {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
                                          "tokenizer.model", "vocab.json", "merges.txt", "added_tokens.json",
                                          "chat_template.jinja", "chat_template.json",
                                          "special_tokens_map.json",
                                          // of those who prepare pictures
                                          "preprocessor_config.json", "processor_config.json",
                                          "video_preprocessor_config.json"};  // that exist there
};

// Writes the table's parameters, taken apart into their sources, and config.json (with options.dtype entered
// under the key it has) as a folder that `transformers` loads. `source` gives [spec.shape] on the host; it is
// asked once per parameter, and once more before that when options.dtype is absent; one parameter is held at
// a time. An existing model folder is replaced as a whole, once the new one is complete and synced.
void save_model(const std::string& path, const WeightTable& table, const WeightTensors& source,
                const Json& config, const SaveOptions& options = {});

}  // namespace temper::checkpoints
