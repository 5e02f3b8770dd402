#pragma once
#include <initializer_list>
#include <span>
#include <string_view>

#include "autograd/tape.h"

// Checks for the front doors. Each failure is one Error "[op] tensor is …, needs …".
namespace temper::ops {

void check_shape(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& expected);
void check_ndim(std::string_view op, std::string_view name, const Tensor& tensor, int expected);
void check_dtype(std::string_view op, std::string_view name, const Tensor& tensor, DType expected);
void check_float(std::string_view op, std::string_view name, const Tensor& tensor);
// The last `dims` dimensions without gaps (all of them by default).
void check_contiguous(std::string_view op, std::string_view name, const Tensor& tensor,
                      int dims = Shape::kMaxDims);

// Rotary positions [tokens] int32 and tables [max_positions, half] float32; a position outside the tables.
void check_rotary_tables(std::string_view op, const Tensor& positions, int64_t tokens, const Tensor& cos,
                         const Tensor& sin);
// int32 on the CPU, from 0 to tokens, not decreasing (cu_seqlens).
void check_starts(std::string_view op, std::string_view name, const Tensor& starts, int64_t tokens);

// The values of integers that are on the CPU, and none of those on a device: a front door never waits for it.
std::span<const int32_t> visible_ids(const Tensor& ids);

}  // namespace temper::ops
