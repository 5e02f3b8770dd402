// Scales of quantizers of values that pass, which come with weights.
#include "exchange/rounding.h"

#include <cmath>

#include "exchange/exchange_fixture.h"

namespace temper::exchange {
namespace {

using quantizers::QuantizeOptions;
using quantizers::Quantizers;
using Values = std::map<std::string, std::vector<float>>;

// Both sides have the same model with quantizers; scales of the sender's are numbers of a test.
class RoundedExchange : public testing::Test {
 protected:
  void begin(const char* type = "qwen3", const QuantizeOptions& options = {"FP8_DEFAULT"},
             Loading loading = Loading::kStaged) {
    receiver_.reset();
    sent_ = tiny_model({.type = type, .deviation = 0.2, .quantize = options});
    model_ = tiny_model({.type = type, .quantize = options});
    receiver_ = std::make_unique<Receiver>(
        socket(), model_->decoder.parameters(),
        ReceiverOptions{.deadline_seconds = 20, .loading = loading, .quantizers = &quantizers()});
    set(1);
  }
  // Of all scales, numbers that follow one another.
  void set(float first) {
    for (const quantizers::NamedScales& each : scales_of(&sent_->decoder.quantizers())) {
      std::vector<float> values;
      while (std::ssize(values) < each.values.numel()) values.push_back(first++);
      each.values.copy_from(Tensor::from<float>(values, each.values.shape()));
    }
  }
  static Values values_of(const Quantizers& quantizers) {
    Values all;
    for (const quantizers::NamedScales& each : scales_of(&quantizers)) {
      const Tensor here = each.values.contiguous();
      all[each.name].assign(here.values<float>().begin(), here.values<float>().end());
    }
    return all;
  }
  std::string socket() const { return files_ / "weights.sock"; }
  Quantizers& quantizers() { return model_->decoder.quantizers(); }
  const Quantizers& others() const { return sent_->decoder.quantizers(); }

  std::string during_passes(const std::function<void()>& send) {
    auto done = std::async(std::launch::async, [&] { return failure_of(send); });
    const auto ended = [&] {
      return done.wait_for(std::chrono::milliseconds(0)) == std::future_status::ready;
    };
    while (!ended()) receiver_->take_new(ended);
    return done.get();
  }
  using Change = std::function<void(Sender&, const quantizers::NamedScales&)>;
  static void add(Sender& sender, const quantizers::NamedScales& each) {
    sender.add(each.name, each.values.contiguous());
  }
  // Chunks of 4 KiB; `change` sends scales in its own way.
  std::string send(const Change& change = add) {
    return during_passes([&] {
      Sender sender(socket(), sent_->decoder.parameters().table(),
                    {.chunk_bytes = 4096, .quantizers = &sent_->decoder.quantizers()});
      sender.begin(1);
      send_owned(sender, sent_->decoder.parameters().placed(), 0);
      for (const quantizers::NamedScales& each : scales_of(&others())) change(sender, each);
      sender.finish();
    });
  }
  std::string handshake_error(const QuantizeOptions& options) {
    const auto model = tiny_model({.quantize = options});
    return during_passes([&] {
      Sender(socket(), model->decoder.parameters().table(), {.quantizers = &model->decoder.quantizers()});
    });
  }

  TemporaryDirectory files_;
  std::unique_ptr<models::Model> model_, sent_;
  std::unique_ptr<Receiver> receiver_;
};

const QuantizeOptions kSmoothed{"INT8_SMOOTHQUANT", {}, true, quantizers::CalibrationMethod::kSmoothQuant};

TEST_F(RoundedExchange, ScalesBecomeVisibleWithTheirWeights) {
  for (const Loading loading : {Loading::kStaged, Loading::kDirect})
    for (const auto& [type, options] : {std::pair{"qwen3", QuantizeOptions{"FP8_DEFAULT"}},
                                        {"qwen3_moe", {"FP8_DEFAULT"}},
                                        {"qwen3", {"FP8_PER_CHANNEL_PER_TOKEN"}},
                                        {"qwen3", kSmoothed},
                                        {"qwen3_moe", kSmoothed}}) {
      SCOPED_TRACE(fmt::format("{} {}", type, options.preset));
      begin(type, options, loading);
      EXPECT_EQ(quantizers().mode(), quantizers::QuantizerMode::kOff);  // nothing has come
      for (const float first : {1.f, 7.f}) {
        set(first);
        const bool calibrated = options.preset != "FP8_PER_CHANNEL_PER_TOKEN";
        EXPECT_EQ(values_of(quantizers()) != values_of(others()), calibrated);
        const uint64_t version = model_->decoder.parameters().version();
        ASSERT_EQ(send(), "");
        EXPECT_NE(model_->decoder.parameters().version(), version);  // no page of before is found
        EXPECT_EQ(values_of(quantizers()), values_of(others()));
        EXPECT_TRUE(quantizers().ready());
        EXPECT_EQ(quantizers().mode(), quantizers::QuantizerMode::kFake);
        for (const quantizers::Quantizer& each : quantizers().all())
          if (each.columns.exist()) {
            EXPECT_EQ(each.columns.pre_quant.contiguous().values<float>()[1],
                      each.columns.whole.values<float>()[1]);
          }
      }
    }
}

TEST_F(RoundedExchange, ScalesAreAmongTheHashes) {
  begin("qwen3_moe", kSmoothed);
  ASSERT_EQ(send(), "");
  Hashes expected = hashes_of(sent_->decoder.parameters()), received;
  const size_t parameters = expected.size();
  for (const quantizers::NamedScales& each : scales_of(&others()))
    expected.emplace(each.name, hash_of(each.values));
  EXPECT_GT(expected.size(), parameters + 12);
  EXPECT_EQ(during_passes([&] {
              received =
                  Sender(socket(), sent_->decoder.parameters().table(), {.quantizers = &others()}).hashes();
            }),
            "");
  EXPECT_EQ(differences(expected, received), std::vector<std::string>());
}

// Whatever goes wrong the old weights answer, with the scales that came with them.
TEST_F(RoundedExchange, EveryErrorLeavesTheOldScales) {
  begin("qwen3_moe", kSmoothed);
  ASSERT_EQ(send(), "");
  const Values old = values_of(quantizers());
  const Hashes weights = hashes_of(model_->decoder.parameters());
  const std::string last = scales_of(&others()).back().name;
  const auto with_value = [](float value) {
    return [value](Sender& sender, const quantizers::NamedScales& each) {
      const std::vector<float> values(static_cast<size_t>(each.values.numel()), value);
      sender.add(each.name, Tensor::from<float>(values, each.values.shape()));
    };
  };
  struct Case {
    Change change;
    std::string found;
  };
  const std::vector<Case> cases{
      {[&](Sender& sender, const auto& each) {
         if (each.name != last) add(sender, each);
       },
       fmt::format("1 tensors did not come, or not all of them: '{}'", last)},
      {[&](Sender&, const auto&) {}, "tensors did not come, or not all of them: "},
      {[&](Sender& sender, const auto& each) {
         sender.add(each.name, Tensor::zeros({3, 5}, DType::kF32));
       },
       "is [3, 5], expected "},
      {[&](Sender& sender, const auto& each) {
         sender.add(each.name, each.values.contiguous().to(DType::kBF16));
       },
       "is bfloat16, expected float32"},
      {[&](Sender& sender, const auto& each) { add(sender, each), add(sender, each); }, "came twice"},
      {with_value(NAN), "has nan, which no calibration finds"},
      {with_value(-1), "has -1, which no calibration finds"},
      {with_value(0), "_pre_quant_scale' has 0, which no calibration finds"}};
  set(5);
  for (const auto& [change, found] : cases) {
    const std::string error = send(change);
    expect_has(error, found);
    EXPECT_EQ(values_of(quantizers()), old) << found;
    EXPECT_EQ(hashes_of(model_->decoder.parameters()), weights) << found;
  }
  // A sender that dies behind any of them.
  for (size_t count = 0; count < scales_of(&others()).size(); ++count) {
    size_t sent = 0;
    const std::string error = send([&](Sender& sender, const auto& each) {
      if (sent++ == count) throw Error("it dies");
      add(sender, each);
    });
    EXPECT_EQ(error, "it dies");
    EXPECT_EQ(values_of(quantizers()), old);
  }
  ASSERT_EQ(send(), "");
  EXPECT_EQ(values_of(quantizers()), values_of(others()));
  EXPECT_NE(values_of(quantizers()), old);
}

TEST_F(RoundedExchange, BothSidesRoundAlikeOrNothingIsSent) {
  begin();
  EXPECT_EQ(handshake_error({"FP8_DEFAULT"}), "");
  EXPECT_EQ(handshake_error(
                {"", {{"layers.*", quantizers::QuantizerKind{"int8"}, quantizers::QuantizerKind{"fp8"}}}}),
            "");  // weights come rounded, however that was
  expect_has(handshake_error({}),
             "the receiver rounds values that pass (8 quantizers, layers.0.attention.output.input_quantizer: "
             "fp8 by tensor, calibrated), the sender does not; start it without --quantize");
  expect_has(handshake_error({"INT8_DEFAULT"}),
             "layers.0.attention.output.input_quantizer rounds otherwise: the sender has int8 by tensor, "
             "calibrated, the receiver fp8 by tensor, calibrated; give --quantize the configuration");
  expect_has(handshake_error({"FP8_PER_CHANNEL_PER_TOKEN"}),
             "the sender has fp8 by token, found in each pass");
  expect_has(handshake_error({"", {{"layers.*.attention.*", {}, quantizers::QuantizerKind{"mxfp8"}}}}),
             "the sender has mxfp8 by ");
  QuantizeOptions some{"FP8_DEFAULT"};
  some.rules = {{"layers.1.mlp.down", {}, quantizers::QuantizerKind{}}};
  expect_has(handshake_error(some),
             "layers.1.mlp.down.input_quantizer rounds otherwise: the sender has none, the "
             "receiver fp8 by tensor, calibrated");
  begin("qwen3", {});
  expect_has(
      handshake_error({"FP8_DEFAULT"}),
      "the sender rounds values that pass (8 quantizers, layers.0.attention.output.input_quantizer: fp8 by "
      "tensor, calibrated), the receiver does not; start it with --quantize RUN.yaml");
  EXPECT_EQ(handshake_error({"INT8_WEIGHT_ONLY"}), "");
}

TEST(Rounding, TheFirstThatDiffersIsNamed) {
  const Rounding two{{"a", "fp8"}, {"b", "int8"}};
  for (const auto& [sent, own, expected] : std::vector<std::tuple<Rounding, Rounding, std::string>>{
           {two, two, ""},
           {two, {{"a", "fp8"}}, "b rounds otherwise: the sender has int8, the receiver none;"},
           {{{"a", "fp8"}}, two, "b rounds otherwise: the sender has none, the receiver int8;"},
           {{{"a", "fp8"}, {"b", "fp8"}}, two, "b rounds otherwise: the sender has fp8, the receiver int8;"},
           {two, {}, "the sender rounds values that pass (2 quantizers, a: fp8), the receiver does not;"}}) {
    const std::string found = failure_of([&, &sent = sent, &own = own] { check_same(sent, own); });
    EXPECT_TRUE(expected.empty() ? found.empty() : found.starts_with("[weights] " + expected)) << found;
  }
}

TEST(Rounding, ScalesAreNumbersThatACalibrationFinds) {
  for (const auto& [name, value, good] :
       std::vector<std::tuple<std::string, float, bool>>{{"w._amax", 0, true},
                                                         {"w._amax", -1, false},
                                                         {"w._amax", INFINITY, false},
                                                         {"w._low", -1, true},
                                                         {"w._low", NAN, false},
                                                         {"w._pre_quant_scale", 2, true},
                                                         {"w._pre_quant_scale", 0, false}}) {
    const std::string found = failure_of([&, &name = name, value = value] {
      check_scales(name, Tensor::from(std::vector<float>{1, value}));
    });
    EXPECT_EQ(found,
              good ? "" : fmt::format("[weights] '{}' has {}, which no calibration finds", name, value));
  }
}

}  // namespace
}  // namespace temper::exchange
