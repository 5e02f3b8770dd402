#include "exchange/weight_sources.h"

#include "base/error.h"
#include "checkpoints/files/finite.h"

namespace temper::exchange {
namespace {

void send_as_it_is(Sender& sender, const checkpoints::ModelFolder& folder, const WeightTable& table) {
  for (const std::string& name : folder.names()) {
    if (table.ignored().contains(name) || table.keeps(name)) continue;
    const checkpoints::TensorEntry& entry = *folder.find(name);
    const auto dtype = checkpoints::supported_dtype(entry);
    if (!dtype || !is_float(*dtype))
      fail("[{}] '{}' is {}, which is sent as the numbers it means only with --names packed", folder.path(),
           name, entry.dtype);
    const Tensor tensor = folder.tensor(name);
    checkpoints::check_finite(tensor, 0, name, folder.path());
    sender.add(name, tensor);
    folder.release(name, tensor);
  }
}

}  // namespace

void send_folder(Sender& sender, const checkpoints::ModelFolder& folder, const WeightTable& table,
                 Names names) {
  if (names == Names::kCheckpoint) return send_as_it_is(sender, folder, table);
  checkpoints::load_rows(
      folder, table, Layout(table), [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
        const std::vector<Slice> run{{first * (spec.shape.numel() / spec.shape[0]), 0, rows.numel()}};
        sender.add(spec.name, spec.shape, run,
                   rows.contiguous(MemoryTag::kWorkspace).reshape({rows.numel()}));
      });
}

void send_owned(Sender& sender, const std::vector<PlacedTensor>& parameters, int rank) {
  for (const PlacedTensor& each : parameters) {
    const Placement& placement = *each.placement;
    if (placement.rank_of(placement.part()) != rank) continue;  // another replica's
    const Tensor own = each.own.on(sender.memory(), MemoryTag::kWorkspace).contiguous(MemoryTag::kWorkspace);
    if (placement.has_whole())
      sender.add(each.name, own);
    else
      sender.add(each.name, placement.whole(), owned_runs(placement), own.reshape({own.numel()}));
  }
}

std::map<std::string, ParameterHash> hashes_of_folder(const checkpoints::ModelFolder& folder,
                                                      const WeightTable& table,
                                                      const std::map<std::string, ParameterHash>& received) {
  std::map<std::string, ParameterHash> hashes;
  const WeightSpec* current = nullptr;
  Tensor value;
  const auto done = [&] {
    if (current != nullptr) hashes.emplace(current->name, hash_of(value));
  };
  checkpoints::load_rows(
      folder, table, Layout(table), [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
        if (current != &spec) {
          done();
          const auto found = received.find(spec.name);
          const auto dtype = found == received.end() ? std::nullopt : dtype_from_string(found->second.dtype);
          value = Tensor::empty(spec.shape, dtype.value_or(rows.dtype()), MemoryTag::kWorkspace);
          current = &spec;
        }
        value.narrow(0, first, rows.dim(0)).copy_from(rows);
      });
  done();
  return hashes;
}

}  // namespace temper::exchange
