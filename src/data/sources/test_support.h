#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/sources/mixture.h"

// What several tests of this folder need.
namespace temper::data {

const Tokenizer& qwen();  // with <|im_start|>, <|im_end|>, <|endoftext|> (special) and <think>

// Each message as <|im_start|>role\ncontent<|im_end|>\n; roles it does not know are left out.
ChatRenderer chatml();
// The same, but like Qwen3: thinking is written only after the last user message, and there always.
ChatRenderer chatml_thinking();
// The same, with generation blocks around what assistants write.
ChatRenderer chatml_marked();

// A file of these lines below the folder.
std::string write_lines(const TemporaryDirectory& folder, const std::string& name,
                        const std::vector<std::string>& lines);

// One source with all rows of the files.
Mixture mixture_of(const std::vector<std::string>& files, const RowOptions& options,
                   ChatRenderer render = chatml());

std::vector<std::string> target_runs(const Example& example);  // what each run of targets decodes to
std::string message_of(const std::function<void()>& action);   // of the Error, or "no error"

}  // namespace temper::data
