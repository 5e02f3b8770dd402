#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/adapter.h"
#include "rollout/requests/request.h"

namespace temper::cli {

// The adapters of a command line, each FOLDER or NAME=FOLDER, of one model.
class Adapters {
 public:
  static constexpr const char* kNone = "none";  // the name of the model alone
  static constexpr const char* kAwaited = "-";  // in place of a folder: it comes from another process
  static constexpr const char* kHelp = "An adapter: FOLDER, NAME=FOLDER or none; repeatable.";

  struct Given {
    std::string name, folder;
  };
  static std::vector<Given> parse(const std::vector<std::string>& given);  // an Error for equal names

  // What can be checked before the model of the folder is read.
  static void check(const std::string& model_folder, const std::vector<std::string>& given);

  Adapters(const models::Model& model, const std::vector<std::string>& given);

  struct Named {
    std::string name;
    std::unique_ptr<layers::Adapter> adapter;  // null: the model alone
    bool awaited = false;                      // and the model alone until it comes
    std::string weights = {};                  // checkpoints::sample_of_weights of its folder
    std::vector<int32_t> stop_ids = {};        // at which its answers end besides (checkpoints/stop_tokens.h)

    // A request for an answer of the model, as one with this adapter.
    rollout::Request apply(rollout::Request request) const;
  };
  // In the order given; the model alone when nothing was given.
  const std::vector<Named>& all() const { return all_; }
  // "none" is always there; an Error lists the names.
  const Named& find(const std::string& name) const;
  // One that was named; an Error lists those.
  Named& named(const std::string& name);
  std::string names() const;  // "math, law, none"

 private:
  std::vector<Named> all_;
  Named none_{kNone, nullptr};
};

}  // namespace temper::cli
