#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "data/pictures/picture_pixels.h"
#include "data/rows/row.h"
#include "data/rows/token_columns.h"

namespace temper::data {

constexpr int32_t kIgnore = -100;  // a target that has no loss

// Documents one after the other, and what the model is to predict at each position: the next token of the
// same document where that is a target, else kIgnore.
struct PackedRow {
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;                      // as many as ids
  std::vector<int64_t> document_lengths;             // sum to the number of ids
  std::vector<int32_t> sources = {};                 // of each document: its number in the mixture
  std::vector<std::vector<Answer>> answers = {};     // of each document, as Example has them
  std::vector<PlacedPicture> pictures = {};          // of all documents, in the order of their tokens
  std::shared_ptr<const PicturePixels> pixels = {};  // of these pictures, where the loader makes them
  TokenColumns sampled = {};  // of each target, in their order; none: nothing was sampled
  // Which experts each token takes, router after router; negative: unknown. None: routers choose.
  std::vector<int32_t> experts = {};

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  int64_t num_targets() const;
};

// An example and where it comes from.
struct Document {
  int64_t row = 0;     // of the mixture
  int64_t piece = 0;   // of the row
  int32_t source = 0;  // of the mixture
  Example example;
};
using DocumentGroup = std::vector<Document>;

int64_t num_tokens(std::span<const Document> documents);
int64_t num_targets(std::span<const PackedRow> rows);
PackedRow pack(std::span<const Document> documents);

enum class Packing {
  kBestFit,     // into the fullest of the open rows that has room
  kSequential,  // one row after the other, in the order of the documents
  kNone         // a row for each document
};

std::string_view name_of(Packing packing);  // "best_fit"

struct PackOptions {
  Packing packing = Packing::kBestFit;
  int64_t max_tokens = 0;  // of a group; 0 only without packing: no limit
  int64_t window = 256;    // groups that are open at a time, for best fit
};

// Puts documents into groups of at most max_tokens tokens, each into the fullest open group that has room
// (best fit; the oldest of equals). When none has and the window is full, the fullest group closes. Documents
// stay whole. The result depends only on the documents and their order.
class Packer {
 public:
  explicit Packer(PackOptions options);
  void add(Document document);  // an Error when it is longer than max_tokens
  void flush();                 // closes the open groups, the oldest first
  DocumentGroup take();         // the group that was closed first, of those left
  int64_t closed_tokens() const { return closed_tokens_; }

  // For saving and restoring what is held: closed groups in the order of closing, then open ones, the oldest
  // first.
  const std::deque<DocumentGroup>& closed() const { return closed_; }
  const std::vector<DocumentGroup>& open() const { return open_; }
  void restore(std::deque<DocumentGroup> closed, std::vector<DocumentGroup> open);

 private:
  void close(size_t group);
  void put_closed(DocumentGroup group);
  PackOptions options_;
  std::deque<DocumentGroup> closed_;
  int64_t closed_tokens_ = 0;
  std::vector<DocumentGroup> open_;
  std::vector<int64_t> open_tokens_;
};

}  // namespace temper::data
