// Saving and restoring a BatchMaker.
#include "base/error.h"
#include "data/batches.h"

namespace temper::data {
namespace {

// A document is its row's number, or [row, piece] where a row was split.
template <class Groups>
Json documents_of(const Groups& groups) {
  Json::Array out;
  for (const DocumentGroup& group : groups) {
    Json::Array documents;
    for (const Document& document : group)
      documents.push_back(document.piece == 0 ? Json(document.row)
                                              : Json(Json::Array{document.row, document.piece}));
    out.emplace_back(std::move(documents));
  }
  return out;
}

void check_same(const Json& saved, const Json& current, std::string_view what, std::string_view advice) {
  for (const auto& [name, value] : current.as_object()) {
    const Json* was = saved.find(name);
    if (!was || *was != value)
      fail("[data] cannot resume with other {} ({}: {} before, {} now); {}", what, name,
           was ? was->dump() : "absent", value.dump(), advice);
  }
}

Json weights_of(const Mixture& mixture) {
  Json::Array weights;
  for (const double weight : mixture.weights()) weights.emplace_back(weight);
  return weights;
}

}  // namespace

// All that decides which rows come when; weights only where they count.
Json BatchMaker::order_settings() const {
  Json settings =
      Json::Object{{"seed", static_cast<int64_t>(options_.seed)}, {"shuffle", options_.shuffle},
                   {"mixing", name_of(options_.mixing)},          {"packing", name_of(options_.packing)},
                   {"pack_window", options_.pack_window},         {"max_length", options_.max_length}};
  if (options_.mixing != Mixing::kConcatenate) settings.set("weights", weights_of(*mixture_));
  return settings;
}

Json BatchMaker::state() const {
  Json::Array counts;
  for (const RowCounts& source : counts_) counts.push_back(source.to_json());
  return Json::Object{{"data", mixture_->fingerprint()},
                      {"order", order_settings()},
                      {"epoch", epoch_},
                      {"place", rows_.place().to_json()},
                      {"kept_in_epoch", kept_in_epoch_},
                      {"closed", documents_of(packer_.closed())},
                      {"open", documents_of(packer_.open())},
                      {"counts", std::move(counts)}};
}

void BatchMaker::restore(const Json& state, bool mended) {
  const Json data = mixture_->fingerprint();
  if (mended)
    check_same(
        state.at("data"), Json::Object{{"rows", data.at("rows")}}, "data",
        "the order of all rows depends on their number: put another row in the place of one that was taken "
        "out (a copy of a good one will do), or restore the file and set data.on_bad_row: skip, or start a "
        "new run");
  else
    check_same(state.at("data"), data, "data",
               "give the files that the run started with, or start a new run");
  check_same(state.at("order"), order_settings(), "settings", "restore the setting, or start a new run");
  const Json::Array& counts = state.at("counts").as_array();
  if (counts.size() != counts_.size())
    fail("[data] the saved state is broken: it counts {} sources, there are {}", counts.size(),
         counts_.size());
  std::deque<DocumentGroup> closed;
  std::vector<DocumentGroup> open;
  for (const Json& group : state.at("closed").as_array()) closed.push_back(read_group(group));
  for (const Json& group : state.at("open").as_array()) open.push_back(read_group(group));
  rows_.restore(RowOrder::Place::from_json(state.at("place")));
  epoch_ = state.at("epoch").as_int();
  kept_in_epoch_ = state.at("kept_in_epoch").as_int();
  for (size_t i = 0; i < counts.size(); ++i) counts_[i] = RowCounts::from_json(counts[i]);
  packer_.restore(std::move(closed), std::move(open));
}

DocumentGroup BatchMaker::read_group(const Json& documents) const {
  DocumentGroup group;
  for (const Json& entry : documents.as_array()) {
    const bool split = entry.is_array() && entry.as_array().size() == 2;
    const int64_t row = split ? entry.as_array()[0].as_int() : entry.as_int(),
                  piece = split ? entry.as_array()[1].as_int() : 0;
    if (row < 0 || row >= mixture_->size() || piece < 0)
      fail("[data] the saved state is broken: row {} of {}", row, mixture_->size());
    ReadRow read = mixture_->read(row);
    if (!read.kept() || piece >= static_cast<int64_t>(read.row.examples.size()))
      fail("[{}] was kept before and is not now; resume with the same tokenizer, chat template and options{}",
           mixture_->place(row), read.error.empty() ? "" : ": " + read.error);
    group.push_back({row, piece, static_cast<int32_t>(mixture_->member_of(row)),
                     std::move(read.row.examples[static_cast<size_t>(piece)])});
  }
  if (options_.packing != Packing::kNone && num_tokens(group) > options_.max_length)
    fail(
        "[data] rows that were packed together have {} tokens, max_length is {}; resume with the same "
        "tokenizer, chat template and options",
        num_tokens(group), options_.max_length);
  return group;
}

}  // namespace temper::data
