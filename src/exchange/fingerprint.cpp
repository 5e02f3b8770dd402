#include "exchange/fingerprint.h"

#include "base/hash.h"

namespace temper::exchange {

std::string fingerprint_of(const WeightTable& table) {
  Hasher hasher;
  const auto add = [&](const std::string& text) { hasher.update(text.c_str(), text.size() + 1); };
  for (const WeightSpec& spec : table.specs()) {
    add(spec.name);
    add(to_string(spec.shape));
    add(std::string(spec.dtype ? to_string(*spec.dtype) : "the model's"));
    for (const WeightSource& source : spec.sources) add(fmt::format("{} {}", source.name, source.rows));
  }
  return hasher.digest();
}

ParameterHash hash_of(const Tensor& value) {
  const Tensor here = value.on({}, MemoryTag::kWorkspace).contiguous(MemoryTag::kWorkspace);
  Hasher hasher;
  hasher.update(here.raw(), static_cast<size_t>(here.bytes()));
  return {std::string(to_string(here.dtype())), hasher.digest()};
}

std::map<std::string, ParameterHash> hashes_of(const layers::ParameterStore& parameters) {
  std::map<std::string, ParameterHash> hashes;
  for (size_t i = 0; i < parameters.size(); ++i)
    hashes.emplace(parameters.spec(i).name, hash_of(parameters[i].value));
  return hashes;
}

std::vector<std::string> differences(const std::map<std::string, ParameterHash>& sent,
                                     const std::map<std::string, ParameterHash>& received) {
  std::vector<std::string> lines;
  for (const auto& [name, hash] : sent) {
    const auto found = received.find(name);
    if (found == received.end())
      lines.push_back(fmt::format("{}: the receiver does not have it", name));
    else if (found->second != hash)
      lines.push_back(fmt::format("{}: sent {} {}, received {} {}", name, hash.dtype, hash.digest,
                                  found->second.dtype, found->second.digest));
  }
  for (const auto& [name, hash] : received)
    if (!sent.contains(name)) lines.push_back(fmt::format("{}: the sender does not have it", name));
  return lines;
}

}  // namespace temper::exchange
