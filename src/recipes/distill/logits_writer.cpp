#include "recipes/distill/logits_writer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/hash.h"
#include "checkpoints/files/safetensors.h"

namespace temper::recipes {
namespace {

constexpr int64_t kFileBytes = int64_t{256} << 20;

template <class T>
Tensor tensor_of(const std::vector<T>& values, Shape shape, DType dtype) {
  const Tensor tensor = Tensor::empty(shape, dtype, MemoryTag::kData);
  if (!values.empty()) tensor.copy_from_host(values.data(), tensor.numel() * int64_t{sizeof(T)});
  return tensor;
}

}  // namespace

std::vector<StoredDocument> documents_of(const data::PackedRow& row) {
  std::vector<StoredDocument> documents;
  size_t first = 0;
  for (const int64_t length : row.document_lengths) {
    const auto count = static_cast<size_t>(length);
    const auto bytes = [&](const std::vector<int32_t>& values) {
      return std::string_view(reinterpret_cast<const char*>(values.data() + first), count * sizeof(int32_t));
    };
    StoredDocument& document = documents.emplace_back();
    document.hash = hash64(bytes(row.targets), hash64(bytes(row.ids)));
    for (size_t t = first; t < first + count; ++t) document.targets += row.targets[t] != data::kIgnore;
    first += count;
  }
  return documents;
}

LogitsWriter::LogitsWriter(std::string folder, int64_t top_k, DType dtype)
    : folder_(std::move(folder)), top_k_(top_k), dtype_(dtype) {
  make_directories(folder_);
}

int64_t LogitsWriter::add(const data::PackedRow& row, const losses::TopTokens& tokens, int64_t first) {
  for (const StoredDocument& document : documents_of(row)) {
    const int64_t begin = first;
    first += document.targets;
    if (document.targets == 0 || !written_.insert(document.hash).second) continue;
    documents_.push_back(static_cast<int64_t>(document.hash));
    starts_.push_back(starts_.back() + document.targets);
    const auto append = [&](auto& all, const auto* values, int64_t width) {
      all.insert(all.end(), values + begin * width, values + first * width);
    };
    append(ids_, tokens.ids.data<int32_t>(), top_k_);
    append(logits_, tokens.logits.data<float>(), top_k_);
    append(rest_, tokens.rest.data<float>(), 1);
    all_tokens_ += document.targets;
    if (std::ssize(ids_) * int64_t{sizeof(int32_t) + sizeof(float)} > kFileBytes) flush();
  }
  return first;
}

void LogitsWriter::flush() {
  const auto documents = std::ssize(documents_), tokens = std::ssize(rest_);
  if (documents == 0) return;
  const std::string name = fmt::format("teacher_logits-{:05}.safetensors", files_.size() + 1);
  checkpoints::SafetensorsWriter writer(join_path(folder_, name), {{"documents", {documents}, DType::kI64},
                                                                   {"starts", {documents + 1}, DType::kI64},
                                                                   {"ids", {tokens, top_k_}, DType::kI32},
                                                                   {"logits", {tokens, top_k_}, dtype_},
                                                                   {"rest", {tokens}, DType::kF32}});
  writer.add(tensor_of(documents_, {documents}, DType::kI64));
  writer.add(tensor_of(starts_, {documents + 1}, DType::kI64));
  writer.add(tensor_of(ids_, {tokens, top_k_}, DType::kI32));
  writer.add(tensor_of(logits_, {tokens, top_k_}, DType::kF32).to(dtype_, MemoryTag::kData));
  writer.add(tensor_of(rest_, {tokens}, DType::kF32));
  files_.push_back(Json::Object{{"name", name}, {"hash", writer.close().hash}});
  documents_.clear();
  starts_ = {0};
  ids_.clear();
  logits_.clear();
  rest_.clear();
}

void LogitsWriter::close(const Json& made_from) {
  flush();
  const Json index = Json::Object{{"made_from", made_from}, {"tokens", all_tokens_}, {"files", files_}};
  write_file(join_path(folder_, kLogitsIndex), index.dump(2) + "\n");
}

}  // namespace temper::recipes
