#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "weights/text_names.h"
#include "weights/weight_axis.h"

namespace temper {

// How adapters may target a parameter: as a linear, as a table of rows, or as the head, which "all linears"
// leaves out as it does routers and experts. Not at all: norms and biases.
enum class LoraRole : uint8_t { kNone, kLinear, kEmbedding, kHead, kRouter, kExperts };

// One Hugging Face tensor that a parameter is made of: `rows` consecutive rows of dimension 0.
struct WeightSource {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  int64_t rows = 0;
};

// Consecutive entries of a dimension of which tensor ranks get equal pieces, of whole units. `shared`: where
// there are fewer units than ranks, neighbours hold the same one.
struct WeightSegment {
  int64_t size = 0;
  bool shared = false;
  int64_t unit = 0;  // 0: the axis's
};

// Everything that is known about one parameter, declared once per family. Loading, saving, resharding,
// adapters, quantizers and weight sync read this and nothing else.
struct WeightSpec {
  std::string name;  // "layers.0.attention.qkv.weight"
  Shape shape;
  std::vector<WeightAxis> axes;       // one per dimension
  std::vector<WeightSource> sources;  // stacked along dimension 0, in this order
  bool decay = true;                  // weight decay applies by default
  LoraRole lora = LoraRole::kNone;
  bool quantize = false;    // quantizers may target it
  bool zeros = false;       // where a new model starts; else matrices random, biases zero, norms one
  bool may_be_new = false;  // files may lack it: it is zero then
  bool transposed = false;  // files hold the transpose: of a matrix with one source
  // 0: that of the matrix. Otherwise of as many rows as there are experts, with all elements of an expert in
  // one; files see that transpose as [rows of one expert, columns · experts].
  int64_t transposed_rows = 0;
  // Of matrices or biases of this number of experts with one source, in files one tensor [experts, columns,
  // rows of one] or [experts, rows of one]; 0: as memory has them. `alternating`: there the rows of an
  // expert's two halves take turns (gate, up, gate, up, …).
  int64_t experts_in_files = 0;
  int64_t experts = 0;  // that stand above one another; 0: none
  bool alternating = false;
  // Files may hold its matrices in MXFP4 instead (checkpoints/mxfp4.h).
  bool mxfp4 = false;
  // Files may hold all sources as one tensor of this name and shape instead, whose elements are the
  // parameter's in their order; "": they may not.
  std::string stacked = {};
  Shape stacked_shape = {};
  // Of three dimensions: files may hold each expert's transpose there, [experts, columns, rows].
  bool transposes_stacked = false;
  // That it is kept in, whatever the model's. Files have a buffer in it, others as dtype_in_files says.
  std::optional<DType> dtype = {};
  bool buffer = false;  // no gradient trains it
  // What tensor ranks divide one by one of the first dimension; empty: each of the sources.
  std::vector<WeightSegment> segments = {};
  bool of_stream = false;  // works on the residual stream between mixers and channels: a norm there
  // The layer of the decoder that it is in, counted from 0; none: the embedding, the head and the norm before
  // it are in no layer. What an adapter adds to a weight, or holds instead of it, is in that weight's layer.
  std::optional<int64_t> layer = {};
};

class WeightTable {
 public:
  // Checks that names are new, that the sources' rows fill the shape, and that an axis is divided in one way
  // by all parameters that have it.
  void add(WeightSpec spec);
  const std::vector<WeightSpec>& specs() const { return specs_; }
  const WeightSpec* find(std::string_view name) const;
  // The parameter and the first row that a Hugging Face tensor fills, which may be a stacked one; null spec
  // when no module has it. The name is the table's own (own_name).
  struct Place {
    const WeightSpec* spec = nullptr;
    int64_t row = 0, rows = 0;
  };
  Place find_source(std::string_view hf_name) const;
  // Whether files that are written hold stacked tensors: those that were read did.
  void set_stacked(bool stacked) { stacked_ = stacked; }
  // And whether those are transposes, where they may be.
  void set_stacked_transposed(bool transposed) { stacked_transposed_ = transposed; }
  bool stacked_transposed(const WeightSpec& spec) const {
    return spec.transposes_stacked && stacked_transposed_;
  }
  // Of a model that also reads pictures, whose parameters are the text's: how files that are written name
  // them, as those that were read did. Names that come from elsewhere are found in each of the ways.
  void set_text_names(const std::optional<TextNames>& names) { text_names_ = names; }
  const std::optional<TextNames>& text_names() const { return text_names_; }
  std::string own_name(std::string_view hf_name) const;
  std::string name_in_files(std::string_view own_name) const;
  // What files hold of a parameter.
  std::vector<WeightSource> sources_in_files(const WeightSpec& spec) const {
    return sources_in_files(spec, stacked_);
  }
  static std::vector<WeightSource> sources_in_files(const WeightSpec& spec, bool stacked);
  // The dtypes, by parameter, that the files that were read have for parameters which are kept in a dtype of
  // their own.
  void set_read_dtypes(std::unordered_map<std::string, DType> dtypes) { read_dtypes_ = std::move(dtypes); }
  // What files that are written have of a parameter whose model is written in `model`; both absent: what it
  // is kept in. A parameter of another dtype than the model's has the one that was read, or the model's where
  // that is wider.
  std::optional<DType> dtype_in_files(const WeightSpec& spec, std::optional<DType> model) const;
  // A weight of one source that is another's ("head.weight", which is "embedding.weight"), and that adapters
  // may target by itself. It is no parameter: neither loaded, which its source is ignored for, nor kept, nor
  // saved.
  struct Tied {
    WeightSpec spec;
    std::string other;
  };
  void tie(WeightSpec spec, std::string other);
  const std::vector<Tied>& tied() const { return tied_; }
  const Tied* find_tied(std::string_view name) const;
  Place find_target(std::string_view hf_name) const;  // as find_source; of tied weights, too

  // Tensors that files may hold and that are not loaded, with the reason ("tied to
  // model.embed_tokens.weight").
  void ignore(std::string hf_name, std::string reason) {
    ignored_.emplace(std::move(hf_name), std::move(reason));
  }
  const std::unordered_map<std::string, std::string>& ignored() const { return ignored_; }

  // Tensors whose names begin so are no parameters: they are neither loaded nor missed, but a folder that is
  // saved gets them from the one that was read, bit by bit.
  void keep(std::string beginning) { kept_.push_back(std::move(beginning)); }
  bool keeps(std::string_view hf_name) const;
  bool keeps_some() const { return !kept_.empty(); }

 private:
  std::vector<WeightSpec> specs_;
  std::vector<Tied> tied_;
  std::unordered_map<std::string, size_t> by_name_;
  std::unordered_map<std::string, std::pair<size_t, size_t>> by_source_;  // spec, source
  std::unordered_map<std::string, std::string> ignored_;
  std::vector<std::string> kept_;
  std::unordered_map<std::string, WeightAxis> axes_;  // by name
  std::unordered_map<std::string, DType> read_dtypes_;
  std::optional<TextNames> text_names_;
  bool stacked_ = false, stacked_transposed_ = false;
};

}  // namespace temper
