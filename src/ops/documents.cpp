#include "ops/documents.h"

#include "base/error.h"
#include "ops/checks.h"

namespace temper::ops {

void check_documents(std::string_view op, const Documents& documents, int64_t tokens) {
  const Tensor &starts = documents.starts, &continued = documents.continued;
  check_starts(op, "starts", starts, tokens);
  if (!continued.defined()) return;
  check_dtype(op, "continued", continued, DType::kI32);
  check_shape(op, "continued", continued, {documents.count()});
  invariant(continued.device().type == DeviceType::kCpu, "what documents continue is on the CPU");
  for (int64_t d = 0; d < documents.count(); ++d) {
    const int64_t before = documents.continues(d);
    if (before < -1 || before >= d || (before >= 0 && documents.continues(before) >= 0))
      fail("[{}] document {} continues document {}, needs -1 or one before it that continues none", op, d,
           before);
  }
}

}  // namespace temper::ops
