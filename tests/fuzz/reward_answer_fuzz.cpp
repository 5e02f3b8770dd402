// The input is a line of a program or a server that judges answers; and the text of an answer that they are
// asked about.
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "base/text.h"
#include "base/utf8.h"
#include "rewards/protocol.h"

namespace temper::rewards {
namespace {

void try_answer(std::string_view text) {
  const ProtocolAnswer answer = answer_of(text);
  if (!answer.problem.empty()) return;
  invariant(answer.id.has_value(), "an answer has an id");
  invariant(std::isfinite(answer.verdict.reward), "a reward is finite");
  invariant(answer.verdict.next.is_null() || !answer.verdict.next.as_array().empty(),
            "what a conversation continues with is messages");
}

void try_request(const std::string& text) {
  const Json row = Json::Object{{text.substr(0, valid_utf8_prefix(text)), Json(1)}};
  const std::string request = request_of(7, {.place = "", .row = &row, .text = text});
  invariant(request.find('\n') == std::string::npos, "a request is one line");
  invariant(Json::parse(request, "request").at("text").as_string() == replace_invalid_utf8(text),
            "a request has another text");
}

}  // namespace
}  // namespace temper::rewards

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  temper::rewards::try_answer(text);
  temper::rewards::try_request(text);
  return 0;
}
