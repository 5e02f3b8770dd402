#pragma once
#include "ops/documents.h"

// The documents of a row as convolutions walk along them: in runs of tokens that belong to one document.
namespace temper::backends {

struct ConvDocument {
  int first, tokens;
  int continues;  // the document whose end comes before it, or -1
  int next;       // another one that continues the same, or -1; of one that is continued: the first that does
};
struct ConvRun {
  int document, first, tokens;  // first: within the document. No tokens in the list's padding
};

struct ConvLists {
  Tensor documents;  // [document_count] ConvDocument
  Tensor runs;       // [run_count] ConvRun
  int document_count, run_count;
};
// Runs of up to `length` tokens. A captured graph is replayed with other documents. Therefore there are as
// many runs as this number of documents and tokens can need at most.
ConvLists conv_lists(const ops::Documents& documents, int64_t tokens, int length, Device device);

}  // namespace temper::backends
