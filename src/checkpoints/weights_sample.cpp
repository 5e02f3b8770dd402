#include "checkpoints/weights_sample.h"

#include <algorithm>

#include "base/files.h"
#include "base/hash.h"

namespace temper::checkpoints {

std::string sample_of_weights(const std::string& folder) {
  constexpr size_t kPiece = 4096, kPieces = 1024;
  Hasher hasher;
  for (const std::string& name : list_directory(folder)) {
    if (!name.ends_with(".safetensors")) continue;
    const MappedFile file(join_path(folder, name));
    const std::string head = name + " " + std::to_string(file.size()) + "\n";
    hasher.update(head.data(), head.size());
    const size_t step = std::max(kPiece, file.size() / kPieces / kPiece * kPiece);
    for (size_t at = 0; at < file.size(); at += step)
      hasher.update(file.data() + at, std::min(kPiece, file.size() - at));
  }
  return hasher.digest();
}

}  // namespace temper::checkpoints
