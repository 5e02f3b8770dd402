#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/field.h"
#include "config/values.h"

namespace temper::config {

// The keys of a configuration struct, each bound to one of its variables, which must outlive the schema and
// stay where they are. A struct declares its keys once, in a function next to it:
//
//   struct OptimizerConfig { double lr = 1e-5; std::array<double, 2> betas{0.9, 0.95}; };
//   void describe(config::Schema& s, OptimizerConfig& c) {
//     s.field("lr", c.lr, "peak learning rate").above(0);
//     s.field("betas", c.betas, "decay of the moments").at_least(0).below(1);
//   }
//   TrainConfig train;
//   Schema schema = schema_of(train);
//   load(schema, "run.yaml", {"--optimizer.lr", "2e-5"});
//
// Keys consist of a-z, 0-9 and _; the value at the time of the declaration is the default.
class Schema {
 public:
  // bool, int, int64_t, double, std::string, optionals and vectors of these, std::array<double, N>.
  template <class T>
  Field& field(std::string_view name, T& value, std::string_view description) {
    return add_value(name, description, detail::TypeOf<T>::get(), value, detail::PlainToJson{},
                     detail::PlainFromJson{});
  }

  // An enum, an optional of one or a vector of them:
  //   s.choice("mode", c.mode, {{"fast", Mode::kFast}, {"exact", Mode::kExact}}, "how to multiply");
  template <class T, class Enum = typename detail::EnumOf<T>::type>
  Field& choice(std::string_view name, T& value, const std::type_identity_t<Names<Enum>>& names,
                std::string_view description) {
    Type type{.scalar = Type::Scalar::kChoice,
              .optional = std::is_same_v<T, std::optional<Enum>>,
              .list = std::is_same_v<T, std::vector<Enum>>};
    for (const auto& [choice_name, unused] : names) type.choices.push_back(choice_name);
    return add_value(name, description, std::move(type), value, detail::ChoiceToJson<Enum>{names},
                     detail::ChoiceFromJson<Enum>{names});
  }

  // A nested struct with its own describe().
  template <class Struct>
  Field& group(std::string_view name, Struct& value, std::string_view description) {
    Field& field = add(name, description, Field::Kind::kGroup);
    field.group = std::make_unique<Schema>();
    describe(*field.group, value);
    return field;
  }

  // A list of nested structs with their own describe().
  template <class Struct>
  Field& list(std::string_view name, std::vector<Struct>& values, std::string_view description) {
    Field& field = add(name, description, Field::Kind::kList);
    const auto sample = std::make_shared<Struct>();
    field.group = std::make_unique<Schema>();
    field.group->sample_ = sample;
    describe(*field.group, *sample);
    field.elements.size = [&values] { return values.size(); };
    field.elements.reset = [&values](size_t count) { values.assign(count, Struct{}); };
    field.elements.at = [&values](size_t index) {
      Schema element;
      describe(element, values.at(index));
      return element;
    };
    return field;
  }

  // An unknown key of this name, at any place, gets this answer. `meant` is the dotted path of the key that
  // it means, as in help ("adapters[].rank"), or a whole sentence. A name may mean several keys, but a
  // sentence is its only answer. Of the root schema.
  void answer(const std::string& name, std::string meant);
  const std::map<std::string, std::vector<std::string>>& answers() const { return answers_; }

  // True when `path` ("train.optimizer.lr", "data.sources[0].path") or anything below it was written by the
  // last load(). A path that is not declared is a defect of the caller.
  bool was_written(std::string_view path) const;
  void set_written(std::set<std::string> paths) { written_ = std::move(paths); }

  const std::vector<std::unique_ptr<Field>>& fields() const { return fields_; }
  const Field* find(std::string_view name) const;  // of this level
  // The key that older versions had at this level by this name, and its path from here ("optimizer.lr");
  // {nullptr, ""}: there is none.
  std::pair<const Field*, std::string> find_former(std::string_view name) const;
  const Field* find_path(std::string_view path) const;  // dotted; list elements may carry an index, [0]

 private:
  template <class T, class ToJson, class FromJson>
  Field& add_value(std::string_view name, std::string_view description, Type type, T& value, ToJson to_json,
                   FromJson from_json) {
    Field& field = add(name, description, Field::Kind::kValue);
    field.type = std::move(type);
    field.get = [&value, to_json] { return detail::to_json(value, to_json); };
    field.set = [&value, from_json](const Json& json) { detail::from_json(json, value, from_json); };
    field.initial = field.get();
    return field;
  }
  Field& add(std::string_view name, std::string_view description, Field::Kind kind);

  std::vector<std::unique_ptr<Field>> fields_;
  std::set<std::string> written_;
  std::map<std::string, std::vector<std::string>> answers_;
  std::shared_ptr<void> sample_;  // the element that a list's own schema is bound to
};

// The present values: of a group or a schema an object, of a list an array.
Json value_of(const Schema& schema);
Json value_of(const Field& field);

template <class Config>
Schema schema_of(Config& config) {
  Schema schema;
  describe(schema, config);
  return schema;
}

}  // namespace temper::config
