// Bases of adapters in 4 bits, from folders that are in NF4 already: they keep their codes.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/files.h"
#include "checkpoints/hf_folder.h"
#include "models/adapter.h"
#include "tests/support/made_up_nf4.h"
#include "tests/support/op_testing.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

using op_testing::values_of;
using primitives::FrozenFormat;

void write_folder(const std::string& path, bool nested, int64_t block = 64) {
  // q|k|v and gate|up are one weight each here; blocks run over rows, the last one of some is shorter, and
  // gate and up have more than 256 blocks.
  const auto model =
      tiny_model({.sizes = {{"hidden_size", 40}, {"head_dim", 10}, {"intermediate_size", 450}}});
  save_made_up_nf4(*model, path, nested, block);
}

std::unique_ptr<Model> load(const std::string& path, std::optional<FrozenFormat> base) {
  BuildOptions options;
  options.dtype = DType::kF32;
  options.base_dtype = base;
  options.ops = ops::all_eager();
  return load_model(path, options);
}

// The weights in 4 bits of both models, and whether their values are the same.
void compare(const Model& narrow, const Model& plain, bool same) {
  int64_t compared = 0;
  for (const WeightSpec& spec : plain.decoder.parameters().table().specs()) {
    if (!spec.quantize) continue;
    SCOPED_TRACE(spec.name);
    const auto kept = values_of(narrow.decoder.parameters().value(spec.name)),
               read = values_of(plain.decoder.parameters().value(spec.name));
    EXPECT_EQ(kept == read, same);
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST(Nf4Folders, KeepTheirCodesAndMagnitudes) {
  const TemporaryDirectory out;
  write_folder(out / "plain", false);
  write_folder(out / "nested", true);
  const auto plain = load(out / "plain", {}), nested = load(out / "nested", {});
  compare(*load(out / "plain", FrozenFormat::kNf4), *plain, true);
  compare(*load(out / "nested", FrozenFormat::kNf4Double), *nested, true);
  // Without double quantization the magnitudes that it means are kept.
  compare(*load(out / "nested", FrozenFormat::kNf4), *nested, true);
}

TEST(Nf4Folders, MagnitudesAloneAreQuantizedWhereTheBaseHasThemSo) {
  const TemporaryDirectory out;
  write_folder(out / "plain", false);
  const auto single = load(out / "plain", FrozenFormat::kNf4),
             both = load(out / "plain", FrozenFormat::kNf4Double);
  const auto &a = single->decoder.parameters(), &b = both->decoder.parameters();
  const char* name = "layers.1.mlp.gate_up.weight";
  EXPECT_TRUE(std::ranges::equal(a.at(name).value.values<uint8_t>(), b.at(name).value.values<uint8_t>()));
  const auto exact = values_of(a.value(name)), near = values_of(b.value(name));
  EXPECT_NE(exact, near);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], near[i], 0.02 * 0.09) << i;
}

// The codes of the merged numbers, as bitsandbytes' folders have them.
TEST(Nf4Folders, AdaptersMergeIntoThem) {
  for (const bool nested : {false, true}) {
    SCOPED_TRACE(nested);
    const TemporaryDirectory out;
    write_folder(out / "base", nested);
    const auto adapter =
        new_adapter(*load(out / "base", {}), {.rank = 2, .targets = {.names = {"q_proj", "up_proj"}}}, 1, "");
    for (size_t i = 0; i < adapter->parameters().size(); ++i)
      for (float& value : adapter->parameters()[i].value.values<float>()) value += 0.1f;
    save_adapter(*adapter, out / "adapter", "");
    merge_adapter(out / "adapter", out / "base", out / "numbers", 1 << 30);
    merge_adapter(out / "adapter", out / "base", out / "codes", 1 << 30, checkpoints::MergedForm::kAsBase);
    const auto base = load(out / "base", {}), numbers = load(out / "numbers", {}),
               codes = load(out / "codes", {});
    const auto rows = [](const Model& model, const char* name, int64_t first, int64_t count) {
      return model.decoder.parameters().value(name).narrow(0, first, count).contiguous();
    };
    const char *qkv = "layers.1.attention.qkv.weight", *gate_up = "layers.1.mlp.gate_up.weight";
    for (const auto& [name, first, count] : {std::tuple{qkv, 0, 40}, {gate_up, 450, 450}}) {
      const quant::Nf4 expected = quant::encode_nf4("", rows(*numbers, name, first, count), nested);
      auto matrix = primitives::empty_nf4({count}, 40, nested, {});
      primitives::set_nf4(matrix, 0, expected);
      EXPECT_TRUE(values_of(primitives::dequantized(matrix, DType::kF32)) ==
                  values_of(rows(*codes, name, first, count)))
          << name;
    }
    for (const auto& [name, first, count] : {std::tuple{qkv, 40, 40}, {gate_up, 0, 450}})
      EXPECT_TRUE(values_of(rows(*base, name, first, count)) == values_of(rows(*codes, name, first, count)))
          << name;
    // A base in 4 bits keeps the codes of what was written.
    compare(*load(out / "codes", nested ? FrozenFormat::kNf4Double : FrozenFormat::kNf4), *codes, true);
  }
}

// Blocks of another size cannot be kept: their values are rounded again.
TEST(Nf4Folders, OtherBlocksAreRoundedAgain) {
  const TemporaryDirectory out;
  write_folder(out / "m", false, 128);
  compare(*load(out / "m", FrozenFormat::kNf4), *load(out / "m", {}), false);
}

}  // namespace
}  // namespace temper::models
