// Saving and restoring a BatchMaker.
#include "base/error.h"
#include "data/batches.h"

namespace temper::data {
namespace {

template <class Groups>
Json rows_of(const Groups& groups) {
  Json::Array out;
  for (const DocumentGroup& group : groups) {
    Json::Array rows;
    for (const Document& document : group) rows.emplace_back(document.row);
    out.emplace_back(std::move(rows));
  }
  return out;
}

void check_same(const Json& saved, const Json& current, std::string_view what, std::string_view advice) {
  for (const auto& [name, value] : current.as_object()) {
    const Json* was = saved.find(name);
    if (!was || *was != value)
      fail("[data] cannot resume with other {}: {} was {}, is {}; {}", what, name,
           was ? was->dump() : "absent", value.dump(), advice);
  }
}

}  // namespace

// All that decides which rows come when.
Json BatchMaker::order_settings() const {
  return Json::Object{{"seed", static_cast<int64_t>(options_.seed)},
                      {"shuffle", options_.shuffle},
                      {"packing", options_.packing},
                      {"pack_window", options_.pack_window},
                      {"max_length", encoder_->options().max_length}};
}

Json BatchMaker::state() const {
  return Json::Object{{"data", source_->fingerprint()},
                      {"order", order_settings()},
                      {"epoch", epoch_},
                      {"position", position_},
                      {"kept_in_epoch", kept_in_epoch_},
                      {"closed", rows_of(packer_.closed())},
                      {"open", rows_of(packer_.open())},
                      {"counts", counts_.to_json()}};
}

void BatchMaker::restore(const Json& state) {
  check_same(state.at("data"), source_->fingerprint(), "data",
             "give the files that the run began with, or start a new run");
  check_same(state.at("order"), order_settings(), "settings", "restore the setting, or start a new run");
  const int64_t position = state.at("position").as_int(), epoch = state.at("epoch").as_int();
  if (position < 0 || position > source_->size() || epoch < 0)
    fail("[data] the saved state is broken: position {} of {}, epoch {}", position, source_->size(), epoch);
  std::deque<DocumentGroup> closed;
  std::vector<DocumentGroup> open;
  for (const Json& rows : state.at("closed").as_array()) closed.push_back(read_group(rows));
  for (const Json& rows : state.at("open").as_array()) open.push_back(read_group(rows));
  start_epoch(epoch);
  position_ = ahead_end_ = position;
  kept_in_epoch_ = state.at("kept_in_epoch").as_int();
  counts_ = RowCounts::from_json(state.at("counts"));
  packer_.restore(std::move(closed), std::move(open));
}

DocumentGroup BatchMaker::read_group(const Json& rows) const {
  DocumentGroup group;
  for (const Json& entry : rows.as_array()) {
    const int64_t row = entry.as_int();
    if (row < 0 || row >= source_->size())
      fail("[data] the saved state is broken: row {} of {}", row, source_->size());
    ReadRow read = read_row(*source_, *encoder_, row);
    if (!read.kept())
      fail("[{}] was kept before and is not now; resume with the same tokenizer, chat template and options",
           source_->place(row));
    group.push_back({row, std::move(read.row.example)});
  }
  const int64_t limit = encoder_->options().max_length;
  if (options_.packing && num_tokens(group) > limit)
    fail(
        "[data] rows that were packed together have {} tokens, max_length is {}; resume with the same "
        "tokenizer, chat template and options",
        num_tokens(group), limit);
  return group;
}

}  // namespace temper::data
