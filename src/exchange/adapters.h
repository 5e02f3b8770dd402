#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "checkpoints/hf_folder.h"
#include "layers/adapter.h"

// Adapters that travel: by their names, with what makes one of their tensors.
namespace temper::exchange {

// What is said of an adapter before its weights come.
struct AdapterNote {
  std::string name;
  Json config;                       // adapter_config.json, as PEFT has it
  std::vector<std::string> tensors;  // that its folder would have
  std::string fingerprint;           // of its table
};
AdapterNote note_of(const layers::Adapter& adapter, const std::string& name);
// Of a folder of PEFT's, and the adapter's table, which its tensors fit; of a model of this table.
struct NotedFolder {
  AdapterNote note;
  WeightTable table;
};
NotedFolder note_of(const checkpoints::ModelFolder& folder, const WeightTable& base, const std::string& name);
Json to_json(const AdapterNote& note);
AdapterNote adapter_note(const Json& json);  // the reverse

// An adapter as a note has it, of a model with these parameters: memory, without values. An Error where it is
// no adapter of this model.
std::unique_ptr<layers::Adapter> make_adapter(const layers::ParameterStore& base, const AdapterNote& note);
// Whether weights of one do the same in the other.
bool is_alike(const layers::Adapter& a, const layers::Adapter& b);

// The adapters of a process that answers, by their names.
class AdapterStore {
 public:
  virtual ~AdapterStore() = default;
  // Null: one of that name is awaited and has never come. An Error where the name is none of this process.
  virtual layers::Adapter* awaited(const std::string& name) = 0;
  // Requests that begin from now on find it by its name.
  virtual void install(const std::string& name, std::unique_ptr<layers::Adapter> adapter) = 0;
};

}  // namespace temper::exchange
