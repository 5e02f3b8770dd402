#pragma once
#include <functional>
#include <utility>
#include <vector>

#include "autograd/grad_slot.h"
#include "backends/onednn/choices_by_expert.h"
#include "backends/onednn/tiles/tile.h"
#include "ops/moe_experts/moe_experts.h"

// The steps of moe_experts (ops/moe_experts) on the CPU. Each task multiplies some rows of one expert by some
// columns of its matrix, which is read in place. The order of a row's sums does not depend on the other rows.
// "Rows" have the order of ChoicesByExpert.
namespace temper::backends {

// A matrix of experts [experts · rows, columns], or its codes.
struct ExpertMatrix {
  const Tensor& matrix;  // [experts · rows, columns]
  const Tensor scales;   // [experts · rows] of codes, or undefined
  int64_t rows;          // of an expert

  // Some rows of one expert's, of `dtype`; the tensor keeps what was made.
  Matrix at(int64_t expert, int64_t first, int64_t count, DType dtype, Tensor& made) const;
};

// Products of few columns that continue the sums of one of experts' matrices.
struct ExpertTerms {
  struct Part {
    Tensor matrices;  // [experts · columns, rank], or [experts · rank, columns] where it is not transposed
    bool transposed = true;
    int64_t first = 0, rank = 0;      // of low's columns
    int64_t column = 0, columns = 0;  // of the product's
  };
  Tensor low;  // [rows, ranks]
  std::vector<Part> parts;
  Tensor bias = {};  // [experts, columns] float32, of each row's expert; undefined: none
  const std::vector<float>* factors = {};  // of each row's bias; null: one
};

Tensor expert_workspace(const ops::MoeExperts& op, const Shape& shape);
Tensor expert_workspace(const ops::MoeExperts& op, const Shape& shape, DType dtype);

// gate|up of all rows, and what `down` reads.
void enter_experts(const ops::MoeExperts& op, const ChoicesByExpert& rows, const ExpertTerms& update,
                   const Tensor& gate_up, const Tensor& y);
// results = a times each expert's matrix, transposed or not; [rows, columns].
void multiply_by_experts(const ChoicesByExpert& rows, const Tensor& a, const ExpertMatrix& matrix,
                         bool transpose, const ExpertTerms& update, const Tensor& results);

// What continues the sums of a product, made when the rows that the product reads are there.
using MakeTerms = std::function<ExpertTerms(const ChoicesByExpert& rows, const Tensor& read)>;
// The whole op: y [tokens, hidden]; gate_up [rows, 2 width] gets gate|up. On a device that only counts it
// takes its memory alone.
void run_experts(const ops::MoeExperts& op, const MakeTerms& of_gate_up, const MakeTerms& of_down,
                 const Tensor& gate_up, const Tensor& y);

// The way back through `down` and swiglu.
struct ReturnedRows {
  Tensor dgate_up;  // [rows, 2 width]
  Tensor y;         // [rows, width]: what `down` read
  Tensor dots;      // [rows, strips] float32, whose sums are the weights' gradients
};
ReturnedRows empty_returned_rows(const ops::MoeExperts& op);
void leave_experts(const ops::MoeExperts& op, const ChoicesByExpert& rows, const ExpertTerms& update,
                   const Tensor& gate_up, const Tensor& dy, const ReturnedRows& to);
// The weights of rows, in their order.
std::vector<float> weights_of(const ChoicesByExpert& rows, const Tensor& weights);
// dweights of each choice: the sum of its row's dots.
void sum_dots(const ChoicesByExpert& rows, const Tensor& dots, const Tensor& dweights);

// low [rows, ranks] = each part's columns of `given` times its matrices, transposed for what is not and the
// other way round, and each of low's columns times its factor. `gathers`: given [tokens, ·], else it has
// rows.
void narrow_by_experts(const ChoicesByExpert& rows, const Tensor& given, bool gathers,
                       const std::vector<ExpertTerms::Part>& parts, const std::vector<float>& factors,
                       const Tensor& low);

// Rows of some neighbouring experts, the first of which is row `first` of all.
struct RowsOfExperts {
  const Tensor rows;  // [rows, columns]
  int64_t first = 0;
  Tensor of(int64_t row, int64_t count) const { return rows.narrow(0, row - first, count); }
};
using ExpertRange = std::pair<int64_t, int64_t>;
// target (+)= aᵀ b of the rows of each expert in [begin, end); experts without rows get zeros.
void add_expert_gradients(const ChoicesByExpert& rows, ExpertRange experts, const RowsOfExperts& a,
                          const RowsOfExperts& b, const GradTarget& target);
// Calls f(experts, their tokens' rows of x) for all experts, some at a time.
void for_gathered_experts(const ops::MoeExperts& op, const ChoicesByExpert& rows, const Tensor& x,
                          const std::function<void(ExpertRange, const RowsOfExperts&)>& f);

// What the tasks of one of these phases take at most, on a device that only counts.
void take_for_expert_tasks(const ops::MoeExperts& op);
// The same for multiply_by_experts alone: `rows` rows of `depth` columns, of `experts` experts; results have
// `columns` columns.
void take_for_products(const Tensor& like, int64_t rows, int64_t experts, int64_t columns, int64_t depth);

}  // namespace temper::backends
