#pragma once
#include <atomic>
#include <vector>

#include "base/threads/background.h"
#include "recipes/learner/learner.h"

namespace temper::recipes {

// Saves the checkpoints of learners: while the run waits, or (checkpoint.async) during the updates that
// follow, from copies in the CPU's memory. One save at a time, so that there is one copy of each learner's
// state at most. All ranks call it at the same time.
class Saver {
 public:
  // `kept`: gets an Error where old checkpoints cannot be removed during the run.
  Saver(collectives::Group& ranks, collectives::KeptErrors& kept, bool in_background)
      : ranks_(ranks), kept_(kept), in_background_(in_background) {}
  ~Saver();  // gives up what has no name yet, of which nothing remains

  // The learners' checkpoints of now, which appear together. Waits for those that are being written.
  // `again`: also where this step is saved.
  void save(const std::vector<Learner*>& learners, bool again = false);
  bool is_under_way() const { return !writing_.empty(); }
  // Whether this rank has written its files, or has none to write.
  bool is_written() const { return files_.wait_for(0); }
  // Gives names to what is being written, when all ranks have written it. An Error of one is thrown on all.
  void commit();
  void finish();  // the same, and waits until old checkpoints are removed

 private:
  void wait();  // for this rank's files; an Error of one is thrown on all

  collectives::Group& ranks_;
  collectives::KeptErrors& kept_;
  const bool in_background_;
  std::vector<Learner*> writing_;  // whose checkpoints have no names yet
  std::atomic<bool> given_up_ = false;
  Background files_;  // what is being written, or removed
};

}  // namespace temper::recipes
