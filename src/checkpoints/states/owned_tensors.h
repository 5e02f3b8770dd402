#pragma once
#include <atomic>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/states/training_state.h"
#include "weights/layout.h"

// How a state holds tensors of which ranks have their parts: each rank writes what it has and no rank before
// it has, and files know which elements of the whole these are (element_runs.h). Of no layout anything
// remains, and a rank of another one reads from each file what it needs.
namespace temper::checkpoints {

// Of tensors what one rank writes.
class OwnedTensors {
 public:
  OwnedTensors() = default;  // nothing
  OwnedTensors(const std::vector<PlacedTensor>& tensors, int rank);

  // One more, of which all ranks have all.
  void add(const std::string& name, const Tensor& tensor);

  bool empty() const { return infos_.empty(); }
  const std::vector<TensorInfo>& infos() const { return infos_; }
  int64_t bytes() const;
  // From now on it has copies in the CPU's memory (tag data) of what the tensors hold now, which others may
  // change. add_to() gives each copy's memory back when it is written.
  void copy();
  // Writes its file, called after `stem` and, where there are several, the rank; none where it is empty.
  // An Error before the next tensor, where another thread gives it up.
  void add_to(StateWriter& writer, std::string_view stem, int rank, int ranks,
              const std::atomic<bool>& given_up = false);

 private:
  struct Owned {
    Tensor own;               // all that the rank holds
    std::vector<Slice> runs;  // what it writes of that; none: all of it
  };
  Tensor compact(const Owned& owned, const TensorInfo& info) const;

  std::vector<TensorInfo> infos_;  // as the file has them
  Metadata metadata_;              // of those that are parts
  std::vector<Owned> owned_;
};

// Each tensor's own part, read from the files of a state that hold elements of it. An Error names a tensor
// that the state does not have, has in another shape, or not whole.
void read_placed(const StateReader& state, std::string_view stem, const std::vector<PlacedTensor>& tensors);

}  // namespace temper::checkpoints
