#include "training/passes/micro_batch.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "training/passes/staged_passes.h"

namespace temper::training {
namespace {

// Documents as the model computes them: answers continue what they have in common.
struct Parts {
  std::vector<int32_t> lengths, continued;

  void add(const DocumentSpan& document) {
    const auto shared = static_cast<int32_t>(document.shared()), first = static_cast<int32_t>(lengths.size());
    if (shared > 0) push(shared, -1);
    for (const data::Answer& answer : document.answers)
      push(static_cast<int32_t>(answer.length), shared > 0 ? first : -1);
  }
  void push(int32_t length, int32_t before) {
    lengths.push_back(length);
    continued.push_back(before);
  }
  bool any_continues() const {
    return std::any_of(continued.begin(), continued.end(), [](int32_t before) { return before >= 0; });
  }
};

// Ids, targets and parts with padding; of rows of several owners the others' are a multiple already.
void pad_tokens(std::vector<int32_t>& ids, std::vector<int32_t>& targets, Parts& parts,
                const PassForm& form) {
  const auto whole = static_cast<size_t>(padded_tokens(static_cast<int64_t>(ids.size()), form));
  // No longer than the documents of the data: positions end somewhere.
  const int32_t longest = *std::max_element(parts.lengths.begin(), parts.lengths.end());
  for (auto left = static_cast<int32_t>(whole - ids.size()); left > 0; left -= parts.lengths.back())
    parts.push(std::min(left, longest), -1);
  ids.resize(whole, 0);
  targets.resize(whole, data::kIgnore);
}

DocumentSpan document_of(const data::PackedRow& row, size_t d, int64_t first) {
  DocumentSpan document{row.document_lengths[d], 0, d < row.sources.size() ? row.sources[d] : 0};
  const auto begin = row.targets.begin() + first;
  document.target_tokens = document.length - std::count(begin, begin + document.length, data::kIgnore);
  if (d < row.answers.size()) document.answers = row.answers[d];
  return document;
}

}  // namespace

int64_t DocumentSpan::shared() const {
  int64_t rest = length;
  for (const data::Answer& answer : answers) rest -= answer.length;
  return rest;
}

int64_t PassForm::token_step() const {
  return (padded ? kTokenStep : context_heads < context_ranks ? 2 : 1) * context_ranks;
}

// A token attends to those before it and to itself.
layers::TokenCut PassForm::cut(std::span<const int64_t> parts, const Tensor& positions) const {
  if (context_heads == context_ranks) return layers::TokenCut::of_parts(parts, context_ranks, context_place);
  std::vector<int64_t> costs;
  const Tensor places = positions.narrow(0, 0, 1).contiguous();
  for (const int32_t position : places.values<int32_t>()) costs.push_back(position + 1);
  return layers::TokenCut::balanced(parts, costs, context_ranks, context_heads, context_place);
}

PassForm form_of(const layers::Decoder& model) {
  const layers::ModelRanks& ranks = model.ranks();
  return {is_apart(model.device()), ranks.context_ranks(), ranks.context_place(), model.context_heads()};
}

std::vector<DocumentSpan> own_documents(std::span<const DocumentSpan> documents, const Tensor& targets,
                                        const layers::TokenCut& cut) {
  if (cut.is_whole()) return {documents.begin(), documents.end()};
  std::vector<DocumentSpan> own;
  int64_t first = 0;
  for (const DocumentSpan& document : documents) {
    const layers::TokenCut part = cut.part(first, document.length);
    const Tensor here = part.own_of(targets.narrow(0, first, document.length));
    const auto found = here.values<int32_t>();
    own.push_back({here.numel(), here.numel() - std::count(found.begin(), found.end(), data::kIgnore),
                   document.source});
    first += document.length;
  }
  return own;
}

namespace {

// One token of no row; routers do not count it.
MicroBatch dummy_batch(const PassForm& form) {
  std::vector<int32_t> ids{0}, targets{data::kIgnore};
  Parts parts;
  parts.push(1, -1);
  pad_tokens(ids, targets, parts, form);
  while (form.padded && !std::has_single_bit(parts.lengths.size())) parts.push(0, -1);
  MicroBatch batch;
  batch.input = layers::make_input(ids, parts.lengths, {});
  batch.input.counted = Tensor::from(std::vector<int32_t>{0});
  batch.input.cut = form.cut(std::array{std::ssize(ids)}, batch.input.positions);
  batch.targets = Tensor::from(targets);
  return batch;
}

}  // namespace

MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end, const PassForm& form,
                  std::span<const size_t> owners) {
  if (begin == end) return dummy_batch(form);
  const bool pads = form.token_step() > 1;
  std::vector<int32_t> ids, targets, counted;
  std::vector<int64_t> padded;  // tokens of each owner
  MicroBatch batch;
  Parts parts;
  const auto ends_here = [&](size_t i) {
    return i + 1 == end || (!owners.empty() && owners[i] != owners[i + 1]);
  };
  int64_t tokens = 0;  // of rows of one owner
  for (size_t i = begin; i < end; ++i) {
    const data::PackedRow& row = rows[i];
    ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    targets.insert(targets.end(), row.targets.begin(), row.targets.end());
    int64_t first = 0;
    for (size_t d = 0; d < row.document_lengths.size(); ++d) {
      batch.documents.push_back(document_of(row, d, first));
      parts.add(batch.documents.back());
      first += row.document_lengths[d];
    }
    batch.tokens += row.size();
    tokens += row.size();
    batch.experts.insert(batch.experts.end(), row.experts.begin(), row.experts.end());
    if (!pads || !ends_here(i)) continue;
    counted.push_back(static_cast<int32_t>(tokens));
    padded.push_back(padded_tokens(tokens, form));
    tokens = 0;
    pad_tokens(ids, targets, parts, form);
    batch.experts.resize(ids.size() * row.experts.size() / row.ids.size(), -1);
  }
  while (form.padded && !std::has_single_bit(parts.lengths.size())) parts.push(0, -1);
  if (!parts.any_continues()) parts.continued.clear();
  batch.input = layers::make_input(ids, parts.lengths, std::move(parts.continued));
  if (pads) batch.input.counted = Tensor::from(counted);
  if (form.context_ranks > 1) batch.input.cut = form.cut(padded, batch.input.positions);
  batch.targets = Tensor::from(targets);
  return batch;
}

std::shared_ptr<layers::RouterTrace> watch_routers(const layers::Decoder& model, const MicroBatch& batch) {
  std::shared_ptr<layers::RouterTrace> trace = model.watch_routers();
  if (trace == nullptr || batch.experts.empty()) return trace;
  const int64_t tokens = batch.input.ids.numel(), routers = static_cast<int64_t>(model.num_routers()),
                width = std::ssize(batch.experts) / tokens, top_k = width / routers;
  invariant(std::ssize(batch.experts) == tokens * top_k * routers, "every token of the pass has its experts");
  trace->routers.resize(static_cast<size_t>(routers));
  for (int64_t router = 0; router < routers; ++router) {
    const Tensor ids = Tensor::empty({tokens, top_k}, DType::kI32, MemoryTag::kData);
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t k = 0; k < top_k; ++k) {
        const int32_t id = batch.experts[static_cast<size_t>(token * width + router * top_k + k)];
        // Tokens whose results are not used can take any experts.
        ids.data<int32_t>()[token * top_k + k] = id < 0 ? static_cast<int32_t>(k) : id;
      }
    trace->routers[static_cast<size_t>(router)].ids =
        batch.input.cut.own_of(ids).on(model.device(), MemoryTag::kData);
  }
  return trace;
}

bool same_shape(const MicroBatch& a, const MicroBatch& b) {
  return a.input.ids.shape() == b.input.ids.shape() &&
         a.input.cu_seqlens.shape() == b.input.cu_seqlens.shape() && a.input.continued == b.input.continued;
}

void assign(MicroBatch& to, const MicroBatch& from) {
  to.input.ids.copy_from(from.input.ids);
  to.input.positions.copy_from(from.input.positions);
  to.input.cu_seqlens.copy_from(from.input.cu_seqlens);
  if (to.input.counted.defined()) to.input.counted.copy_from(from.input.counted);
  to.targets.copy_from(from.targets);
  to.documents = from.documents;
  to.tokens = from.tokens;
}

std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens) {
  std::vector<std::pair<size_t, size_t>> groups;
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t length = rows[i].size();
    if (groups.empty() || (max_tokens > 0 && tokens + length > max_tokens)) {
      groups.emplace_back(i, i);
      tokens = 0;
    }
    groups.back().second = i + 1;
    tokens += length;
  }
  return groups;
}

std::vector<std::pair<size_t, size_t>> cut_micro_batches(const layers::Decoder& model,
                                                         const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens) {
  std::vector<std::pair<size_t, size_t>> groups = cut_micro_batches(rows, max_tokens);
  collectives::Group* const ranks = model.ranks().lockstep_group();
  if (ranks == nullptr) return groups;
  const std::vector<int64_t> counts = ranks->gather("micro-batches", std::ssize(groups));
  groups.resize(static_cast<size_t>(*std::max_element(counts.begin(), counts.end())),
                {rows.size(), rows.size()});
  return groups;
}

void for_each_pass(const layers::Decoder& model, const layers::Adapter* adapter,
                   const std::vector<data::PackedRow>& rows, int64_t max_tokens, const ReadPass& use) {
  const layers::ModelStages& stages = model.ranks().stages;
  const auto pass = [&](Tape& tape, const MicroBatch& batch, const layers::Decoder::Part& part) {
    layers::AdapterRows all{adapter, batch.input.ids.numel()};
    layers::Decoder::Options options;
    options.adapters = {all};
    if (!batch.experts.empty()) options.routers = watch_routers(model, batch);
    Var made = model.forward(tape, batch.input, options, part);
    if (part.index + 1 < stages.num_parts()) return made;
    all.rows = made.shape()[0];
    use(tape, made, batch, all);
    return made;
  };
  std::vector<MicroBatch> batches;  // of several stages, which come back to them
  for (const auto& [begin, end] : cut_micro_batches(model, rows, max_tokens)) {
    MicroBatch batch = gather(rows, begin, end, form_of(model));
    Tape tape(false);
    stages.count() > 1 ? batches.push_back(std::move(batch)) : static_cast<void>(pass(tape, batch, {}));
  }
  if (stages.count() == 1) return;
  StagedPasses(stages, model.device(), {},
               {[&](Tape& tape, size_t batch, const layers::Decoder::Part& part) {
                  return pass(tape, batches[batch], part);
                },
                [&](size_t batch) { return model.make_part_input(batches[batch].input); }})
      .read(batches.size());
}

}  // namespace temper::training
