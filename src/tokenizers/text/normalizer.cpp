#include "tokenizers/text/normalizer.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizers/text/component.h"
#include "tokenizers/text/normalizer_steps.h"
#include "tokenizers/text/precompiled.h"
#include "tokenizers/text/unicode_form.h"

namespace temper::tokenizers {
namespace {

using StepMaker = std::unique_ptr<const NormalizerStep> (*)(const Json&, const std::string&);

class FormStep : public NormalizerStep {
 public:
  explicit FormStep(Form form) : form_(form) {}
  AlignedText run(std::string_view text, bool aligned) const override {
    return aligned ? form_.normalize_aligned(text) : AlignedText{form_.normalize(text), Alignment()};
  }
  bool keeps(std::string_view text) const override { return form_.unchanged_prefix(text) == text.size(); }
  bool keeps_ascii() const override { return true; }

 private:
  UnicodeForm form_;
};

template <Form form>
std::unique_ptr<const NormalizerStep> make_form(const Json&, const std::string&) {
  return std::make_unique<FormStep>(form);
}

constexpr std::pair<std::string_view, StepMaker> kSteps[] = {
    {"NFC", make_form<Form::kNfc>},   {"NFD", make_form<Form::kNfd>}, {"NFKC", make_form<Form::kNfkc>},
    {"NFKD", make_form<Form::kNfkd>}, {"Prepend", make_prepend},      {"Replace", make_replace},
    {"Lowercase", make_lowercase},    {"Strip", make_strip},          {"Precompiled", make_precompiled},
};

std::unique_ptr<const NormalizerStep> make_step(const Json& component, const std::string& place) {
  const std::string& type = component_type(component, place);
  std::string known;
  for (const auto& [name, make] : kSteps) {
    if (name == type) return make(component, place);
    known += fmt::format("{}, ", name);
  }
  refuse_component(place, type, known + "Sequence");
}

// Steps that feed each other could fill the memory.
constexpr size_t kMostGrowth = 1000, kSmallText = 1 << 20;

void check_growth(size_t before, size_t after) {
  if (after > kSmallText && after / kMostGrowth > before)
    fail("[normalizer] a text of {} bytes became one of {}; at most {} times as long is supported", before,
         after, kMostGrowth);
}

}  // namespace

Normalizer Normalizer::from_json(const Json& json, std::string_view where) {
  Normalizer normalizer;
  for_each_component(json, "normalizers", where, [&](const Json& component, const std::string& place) {
    normalizer.steps_.push_back(make_step(component, place));
  });
  return normalizer;
}

bool Normalizer::keeps(std::string_view text) const {
  return std::all_of(steps_.begin(), steps_.end(), [&](const auto& step) { return step->keeps(text); });
}

bool Normalizer::keeps_ascii() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const auto& step) { return step->keeps_ascii(); });
}

std::string Normalizer::normalize(std::string_view text, bool continued, Alignments* alignments) const {
  std::string out(text);
  for (const auto& step : steps_) {
    if (continued && step->begins_texts()) continue;
    AlignedText rewritten = step->run(out, alignments != nullptr);
    if (alignments) alignments->add(std::move(rewritten.alignment));
    out = std::move(rewritten.text);
    check_growth(text.size(), out.size());
  }
  return out;
}

}  // namespace temper::tokenizers
