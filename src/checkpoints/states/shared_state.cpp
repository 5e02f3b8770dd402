#include "checkpoints/states/shared_state.h"

#include <new>
#include <utility>

#include "base/error.h"
#include "base/process.h"
#include "checkpoints/files/manifest.h"
#include "collectives/at_root.h"
#include "collectives/hosts.h"

namespace temper::checkpoints {

StagedOwner owner_of_states(collectives::Group& ranks) {
  return {collectives::made_at_root(ranks, "who owns checkpoints", [] { return to_string(this_process()); }),
          ranks.rank() == 0};
}

SharedState::SharedState(std::string root, int64_t step, StagedOwner owner)
    : root_(std::move(root)), step_(step), owner_(std::move(owner)) {}

void SharedState::write_files(const std::function<void(StateWriter&)>& files) noexcept {
  try {
    writer_ = std::make_unique<StateWriter>(root_, step_, owner_);
    files(*writer_);
  } catch (...) {
    error_ = std::current_exception();  // which takes no memory
  }
}

// What write() could not do.
void SharedState::rethrow() const try {
  if (error_) std::rethrow_exception(error_);
} catch (const std::bad_alloc&) {
  fail_resources("out of memory while a checkpoint was written");
}

void SharedState::name_it(collectives::Group& ranks) {
  const std::vector<std::string> written = collectives::made_at_each(ranks, "files of the checkpoint", [&] {
    rethrow();
    return files_to_json(writer_->files()).dump();
  });
  collectives::at_root(ranks, "the checkpoint's commit", [&] {
    for (size_t rank = 1; rank < written.size(); ++rank) try {
        writer_->add_written(files_from_json(Json::parse(written[rank], "files of the checkpoint")));
      } catch (const Error& error) {
        fail("{}; rank {} wrote it: all machines must share the output folder", error.what(),
             collectives::with_host(ranks, static_cast<int>(rank)));
      }
    writer_->commit();
  });
}

// What is left of the folder goes when every rank has left it.
void SharedState::commit(collectives::Group& ranks) {
  try {
    name_it(ranks);
  } catch (...) {
    writer_.reset();
    throw;
  }
  writer_.reset();
}

}  // namespace temper::checkpoints
