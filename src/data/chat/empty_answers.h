#pragma once
#include "data/chat/content.h"

namespace temper::data {

// Answers that say nothing: no text but white space, no call and no reasoning.
struct EmptyAnswers {
  int64_t turns = 0;     // of the assistant, that would be trained on
  bool nothing = false;  // there is no other answer in the row
};

EmptyAnswers find_empty_answers(const Content& content);

// Gives such turns a weight of 0: what an assistant that says nothing teaches is to say nothing.
void leave_out_empty_answers(Content& content);

}  // namespace temper::data
