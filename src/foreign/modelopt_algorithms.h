#pragma once
#include <span>
#include <string_view>

#include "foreign/quantized_codes.h"

// How nvidia-modelopt's folders hold matrices, by the quant_algo of their configuration. Of the matrix
// X.weight [rows, columns] there are
//   X.weight          codes
//   X.weight_scale    float32, or E4M3, or powers of two (uint8), one for each group of elements
//   X.weight_scale_2  float32 []: of some, of the whole matrix: what the scales of blocks are multiplied by,
//   or
//                     that of a second rounding
//   X.pre_quant_scale [columns]: of some, what inputs are multiplied by before they are quantized
//   X.input_scale     float32 []: of some, by which inputs are rounded; it has no meaning for the matrix
namespace temper::foreign {

enum class ScaleGroups { kWhole, kRows, kBlocks, kTiles };

struct ModeloptAlgorithm {
  std::string_view name;   // in files
  std::string_view dtype;  // of codes, as the format of files spells it
  CodesIn layout;
  quant::Element element;
  ScaleGroups groups;
  std::string_view scale_dtype;
  int64_t block = 0;    // columns of a block, rows and columns of a tile, unless a file says otherwise
  bool second = false;  // there is weight_scale_2
  std::string_view format = {};  // of weights (quant::formats()); "": they are read, but not written
  // What the codes mean is rounded once more, to E4M3 times weight_scale_2, which the blocks' scales are not
  // multiplied by.
  bool rounds_again = false;
  bool zeros = false;  // codes have zero points (foreign/compressed_parts.h)

  // Of weight_scale: the shapes that files may have, first the one that is written. `block` of kBlocks and
  // kTiles.
  std::vector<Shape> scale_shapes(int64_t rows, int64_t columns, int64_t block) const;
};

// An algorithm, and the width of its blocks or tiles (0: there are none).
struct ModeloptChoice {
  const ModeloptAlgorithm* algorithm = nullptr;
  int64_t block = 0;
};

// How the inputs of an algorithm's matrices are rounded.
struct ModeloptInputs {
  std::string_view format = {};  // of quant::formats(); "": they are read as they are
  // Where there is no input_scale: kAsTheyAre, or each pass finds the amax of all, or of each token.
  enum class Unscaled { kAsTheyAre, kByTensor, kByToken } without_scale = Unscaled::kAsTheyAre;
};
ModeloptInputs inputs_of(const ModeloptAlgorithm& algorithm);

std::span<const ModeloptAlgorithm> modelopt_algorithms();
// Upper and lower case are the same; null: there is none.
const ModeloptAlgorithm* find_modelopt_algorithm(std::string_view name);

}  // namespace temper::foreign
