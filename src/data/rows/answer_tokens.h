#pragma once
#include "data/rows/row.h"

// Tokens of texts that answers stand in, with the borders of generation: there a model gets the tokens of a
// prompt alone, and what it writes are tokens behind them. Where the whole text begins with the prompt's
// tokens, its tokens are used; else the text is cut where the answer begins, so that no token is half prompt
// and half answer.
namespace temper::data {

// A text with its assistant turns as targets: a token is one when it begins inside a turn. White space behind
// an end-of-turn token that is special is not a target, though the turn holds it. The last example is of the
// whole text. A turn where the text must be cut (at its beginning, or at its end, where a target would hold
// what another writes) is trained on an example that ends with it, since in the prompts of later turns it is
// not cut; the last turn needs no example of its own.
std::vector<Example> tokenize_turns(const ChatText& text, const Tokenizer& tokenizer);

// A text of which every token is a target, with places where answers begin, ascending.
Example tokenize_all(std::string_view text, const std::vector<size_t>& answers, const Tokenizer& tokenizer);

// A prompt and the answer behind it, which begins at `answer`, with the tokenizer's tokens around both.
// Targets are the answer's tokens, or all.
Example tokenize_answer(std::string_view text, size_t answer, bool all, const Tokenizer& tokenizer);

}  // namespace temper::data
