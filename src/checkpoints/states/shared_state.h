#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "checkpoints/states/training_state.h"

namespace temper::checkpoints {

// Rank 0 owns the folders of states while they are written. All ranks call it.
StagedOwner owner_of_states(collectives::Group& ranks);

// One state that all ranks of a run write together, each its own files.
class SharedState {
 public:
  SharedState(std::string root, int64_t step, StagedOwner owner);

  // Writes this rank's files, at the same time as the other ranks or not. Nothing is thrown: an error waits
  // for commit().
  template <class F>  // files(StateWriter&)
  void write(const F& files) noexcept {
    write_files(std::ref(files));  // a function that holds more than a reference may take memory
  }
  // All ranks call it when they have written: the state gets its name. An Error of a rank is thrown on all of
  // them, the lowest rank's, and nothing of the state remains.
  void commit(collectives::Group& ranks);

 private:
  void write_files(const std::function<void(StateWriter&)>& files) noexcept;
  void rethrow() const;
  void name_it(collectives::Group& ranks);

  std::string root_;
  int64_t step_;
  StagedOwner owner_;
  std::unique_ptr<StateWriter> writer_;
  std::exception_ptr error_;
};

}  // namespace temper::checkpoints
