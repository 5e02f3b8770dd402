#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json/json.h"
#include "templates/text/origin.h"

// The values of templates: Python's, as far as templates see them. Immutable and cheap to copy, except for
// namespaces and generators, which change for everyone who holds them.
namespace temper::templates {

class Value;
class LoopState;
struct Arguments;
using List = std::vector<Value>;
using Dict = std::vector<std::pair<Value, Value>>;  // in order of insertion

struct None {};
// The value of a missing name; prints as nothing, most other uses fail with `message`.
struct Undefined {
  std::string message;
};
struct TextData {
  std::string text;
  bool markup = false;  // made by safe or escape: what is joined to it is escaped
  Origins origins = {};
};
struct ListData {
  List items;
  int depth = 1;  // levels of nesting
};
struct TupleData : ListData {};
// What a dict's items(), keys() and values() return, and range: read like lists, but neither JSON nor sliced.
struct ViewData : ListData {
  std::string_view name;  // "dict_items"
  std::string text;       // how a range prints
};
// What filters such as map return: always true, without length, read once.
struct GeneratorData : ListData {};
struct DictData {
  Dict entries;
  int depth = 1;
  std::shared_ptr<std::vector<bool>> seen = {};  // which entries were looked up; null: not recorded
};
struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;
};
struct Function {
  std::string name;
  std::function<Value(const Arguments&)> call;
};

class Value {
 public:
  // The order is that of the variant below.
  enum class Kind {
    kUndefined,
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kList,
    kTuple,
    kView,
    kGenerator,
    kDict,
    kNamespace,
    kFunction,
    kLoop
  };

  Value() = default;  // undefined
  Value(None) : data_(None()) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(int64_t value) : data_(value) {}
  Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string text);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(Function function) : data_(std::make_shared<const Function>(std::move(function))) {}
  Value(Namespace* names) : data_(names) {}
  Value(std::shared_ptr<LoopState> loop) : data_(std::move(loop)) {}
  static Value markup(std::string text);
  static Value list(List items);
  static Value tuple(List items);
  static Value view(List items, std::string_view name, std::string text = "");
  static Value generator(List items);
  static Value dict(Dict entries);
  static Value watched_dict(Dict entries);  // it knows which of its entries were looked up
  static Value traced(std::string text, Origins origins, bool markup);
  static Value from_json(const Json& json, std::optional<Source> source = {});  // that its texts have

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_string() const { return is(Kind::kString); }
  bool is_integer() const { return is(Kind::kInt) || is(Kind::kBool); }  // as in Python, a bool is an int
  bool is_number() const { return is_integer() || is(Kind::kFloat); }
  bool is_dict() const { return is(Kind::kDict); }

  // Each requires its kind, except that integer() takes bools and number() all numbers.
  const std::string& message() const { return std::get<Undefined>(data_).message; }
  int64_t integer() const;
  double number() const;
  const std::string& text() const { return std::get<Text>(data_)->text; }
  const Origins& origins() const { return std::get<Text>(data_)->origins; }
  bool is_markup() const { return is_string() && std::get<Text>(data_)->markup; }
  const List& items() const;  // of lists, tuples, views and generators
  const ViewData& view() const { return *std::get<std::shared_ptr<const ViewData>>(data_); }
  bool is_range() const { return is(Kind::kView) && view().name == "range"; }
  const Dict& entries() const { return std::get<std::shared_ptr<const DictData>>(data_)->entries; }
  List take_generator() const;
  Namespace& names() const { return *std::get<Namespace*>(data_); }
  const Function& function() const { return *std::get<std::shared_ptr<const Function>>(data_); }
  LoopState& loop() const { return *std::get<std::shared_ptr<LoopState>>(data_); }

  const Value* find(std::string_view key) const;  // in a dict
  void see(size_t entry) const;                   // of a dict: it is looked up
  List unseen() const;                            // keys of a watched dict that were not looked up
  std::string_view type_name() const;             // Python's: "str", "NoneType"
  int depth() const;

 private:
  static Value make_text(TextData data);
  using Text = std::shared_ptr<const TextData>;
  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const ListData>,
               std::shared_ptr<const TupleData>, std::shared_ptr<const ViewData>,
               std::shared_ptr<GeneratorData>, std::shared_ptr<const DictData>, Namespace*,
               std::shared_ptr<const Function>, std::shared_ptr<LoopState>>
      data_;
};

}  // namespace temper::templates
