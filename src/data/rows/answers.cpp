#include "data/rows/answers.h"

#include <algorithm>

#include "base/error.h"

namespace temper::data {
namespace {

// Tokens that a pair has in common before the first target, except the last of them, whose prediction is each
// answer's own.
int64_t shared_tokens(const Example& chosen, const Example& rejected) {
  const auto same =
      std::mismatch(chosen.ids.begin(), chosen.ids.end(), rejected.ids.begin(), rejected.ids.end()).first -
      chosen.ids.begin();
  int64_t shared = same;
  for (const Example* example : {&chosen, &rejected})
    shared =
        std::min<int64_t>(shared, std::find(example->loss_mask.begin() + 1, example->loss_mask.end(), 1) -
                                      example->loss_mask.begin());
  return std::max<int64_t>(shared - 1, 0);
}

std::string_view name_of_answer(bool pair, size_t index) {
  if (!pair) return "completion";
  return index == 0 ? "chosen" : "rejected";
}

bool says_nothing(const Content& content) {
  if (!content.chat) return content.target_begin == content.text.size();
  const Json& last = content.messages.back();
  const Json* text = field_of(last, "content");
  return !field_of(last, "tool_calls") && (!text || text->as_string().empty());
}

}  // namespace

void check_said(const std::vector<Content>& contents) {
  for (size_t i = 0; i < contents.size(); ++i)
    if (says_nothing(contents[i]))
      fail("{} is empty, expected an answer", name_of_answer(contents.size() == 2, i));
}

void check_judged(RowFormat format, Goal goal) {
  if (format == RowFormat::kPreference) return;
  if (goal == Goal::kPairs)
    fail("the row is of format {}, this loss compares two answers; expected prompt, chosen and rejected",
         name_of(format));
  if (format != RowFormat::kPromptCompletion)
    fail("the row is of format {}; expected prompt, completion and label, or prompt, chosen and rejected",
         name_of(format));
}

void check_answers(const EncodedRow& row) {
  const bool pair = row.format == RowFormat::kPreference;
  for (size_t i = 0; i < row.examples.size(); ++i)
    if (row.examples[i].num_targets() == 0)
      fail("{} has no token to learn; expected an answer after the prompt", name_of_answer(pair, i));
  if (pair && row.examples[0].ids == row.examples[1].ids)
    fail("chosen and rejected are the same {} tokens; expected two answers that differ",
         row.examples[0].size());
}

bool label_of(const Json& row) {
  const Json* label = field_of(row, "label");
  if (!label)
    fail(
        "completion has no label (fields: {}); expected true for a good answer, false for a bad "
        "one",
        fields_of(row));
  if (label->is_bool()) return label->as_bool();
  if (label->is_int() && (label->as_int() == 0 || label->as_int() == 1)) return label->as_int() == 1;
  // As tables of texts write them.
  for (const std::string_view yes : {"true", "True", "1"})
    if (*label == Json(yes)) return true;
  for (const std::string_view no : {"false", "False", "0"})
    if (*label == Json(no)) return false;
  fail("label is {}, expected true or false (or 1 or 0)", label->dump());
}

Example join_answers(const Example& chosen, const Example& rejected, bool share) {
  const int64_t shared = share ? shared_tokens(chosen, rejected) : 0;
  Example joined;
  // Those of an example's tokens from `begin` to `end`, which are put behind all others.
  const auto add_pictures = [&](const Example& example, int64_t begin, int64_t end) {
    const int64_t shift = joined.size() - begin;
    for (PlacedPicture picture : example.pictures) {
      if (picture.first < begin || picture.first >= end) continue;
      invariant(picture.end() <= end, "answers share a part of a picture");
      picture.first += shift;
      joined.pictures.push_back(std::move(picture));
    }
  };
  add_pictures(chosen, 0, shared);
  joined.ids.assign(chosen.ids.begin(), chosen.ids.begin() + shared);
  joined.loss_mask.assign(static_cast<size_t>(shared), 0);
  for (const Example* example : {&chosen, &rejected}) {
    add_pictures(*example, shared, example->size());
    joined.ids.insert(joined.ids.end(), example->ids.begin() + shared, example->ids.end());
    joined.loss_mask.push_back(0);
    joined.loss_mask.insert(joined.loss_mask.end(), example->loss_mask.begin() + shared + 1,
                            example->loss_mask.end());
    joined.answers.push_back({example->size() - shared, example == &chosen});
  }
  return joined;
}

void judge(EncodedRow& out, const Json& row, bool share_prompts) {
  if (out.status != RowStatus::kKept) return;
  if (out.format != RowFormat::kPreference) {
    out.examples[0].answers = {{out.examples[0].size(), label_of(row)}};
    return;
  }
  // Answers that differ behind max_length only.
  if (out.examples[0].ids == out.examples[1].ids) {
    out.status = RowStatus::kNoTargets;
    return out.examples.clear();
  }
  out.examples = {join_answers(out.examples[0], out.examples[1], share_prompts)};
}

}  // namespace temper::data
