#pragma once
#include "data/rows/row.h"

// Answers that are compared or judged, as examples.
namespace temper::data {

inline bool compares(Goal goal) { return goal == Goal::kPairs || goal == Goal::kJudgments; }

// Refuses rows that are no preferences (kPairs), and no labelled completions either (kJudgments).
void check_judged(RowFormat format, Goal goal);

// Refuses answers that say nothing. One content, or chosen and rejected.
void check_said(const std::vector<Content>& contents);

// Refuses answers without a token to learn, and pairs of the same tokens. Examples are whole here.
void check_answers(const EncodedRow& row);

bool label_of(const Json& row);  // the field `label`: true or false, or 1 or 0

// A pair as one example. What both begin with, up to the last token of the prompt, is there once, unless
// `share` is false. The first token of each is no target: nothing comes before it.
Example join_answers(const Example& chosen, const Example& rejected, bool share);

// The answers of a row that was kept: an example of both of a preference, or what the row's label says of
// one.
void judge(EncodedRow& row, const Json& given, bool share_prompts);

}  // namespace temper::data
