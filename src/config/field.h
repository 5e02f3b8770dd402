#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json/json.h"

namespace temper::config {

class Schema;

// The type of a value: one scalar, or a list of them. A table, a mapping of mappings to text with free keys,
// counts as a scalar: it is set as a whole.
struct Type {
  enum class Scalar { kBool, kInt, kFloat, kString, kChoice, kTable };
  Scalar scalar = Scalar::kString;
  bool optional = false;  // null is allowed
  bool list = false;
  int64_t size = -1;                                     // of a list; -1 is any
  int64_t lowest = std::numeric_limits<int64_t>::min();  // kInt
  int64_t highest = std::numeric_limits<int64_t>::max();
  std::vector<std::string> choices = {};  // kChoice
};

// Which values of a type a key takes.
struct Limits {
  std::optional<double> minimum = {}, maximum = {};
  bool open_minimum = false, open_maximum = false;  // the bound itself is not allowed
  std::vector<Json> allowed = {};                   // empty: all within the bounds
  // What is answered to a value that is refused, by the value: what other programs write here.
  std::vector<std::pair<std::string, std::string>> answers = {};

  bool take(const Json& value) const;  // a number within the bounds that is allowed, or another value that is
  std::string bounds() const;          // "above 0 and at most 1", or nothing
};

// The elements of a list of groups.
struct Elements {
  std::function<size_t()> size = {};
  std::function<void(size_t)> reset = {};  // to this number of elements, with their defaults
  std::function<Schema(size_t)> at = {};   // the keys of one element; valid until the next reset
  std::string shorthand_key = {};  // what an element sets that is written as one scalar; "": none can be
};

// One declared key: a value, a group of keys, or a list of groups. The builder functions below the data
// refine a declaration; they apply to every element of a list.
struct Field {
  enum class Kind { kValue, kGroup, kList };
  Kind kind = Kind::kValue;
  std::string name;
  std::string description;

  // kValue: the program's variable as a Json of the declared type (a choice is its name).
  Type type;
  Json initial;  // at the time of the declaration
  std::function<Json()> get;
  std::function<void(const Json&)> set;

  // kGroup: its keys; kList: those of one element with its defaults, for help and unknown keys.
  std::unique_ptr<Schema> group;

  Elements elements;  // kList

  bool is_required = false;
  bool is_path = false;
  bool is_rare = false;
  bool may_change = false;  // a run that is resumed may have another value of it
  // What versions before the key had: what runs did, and other names; of a group, that its keys stood in the
  // group around it.
  struct Before {
    std::optional<Json> value = {};
    std::vector<std::string> names = {};
    bool is_flat = false;
  };
  Before before = {};
  Limits limits;

  Field& at_least(double bound);
  Field& above(double bound);
  Field& at_most(double bound);
  Field& below(double bound);
  Field& one_of(std::vector<Json> values);
  Field& required();                      // an omitted key is an error
  Field& shorthand(std::string key);      // an element written as one scalar sets this key of it
  Field& path();                          // text that begins with ~ or $HOME has the user's folder there
  Field& rare();                          // a group that help lists last
  Field& changeable();                    // another value, or another one below it, does not make another run
  Field& older_runs_had(Json value);      // where that is not the default
  Field& formerly(std::string old_name);  // saved configurations may have this name (load_saved), or others
  // Of a group: saved configurations may have its keys in the group around it, by their former names or,
  // where they have none, by their present ones.
  Field& formerly_flat();
  // A value that is refused gets this answer: what other programs write here.
  Field& answer(std::string value, std::string text);
};

// What a value must be, or one element of it: "a number above 0", "a list of 2 integers", "one of sft, grpo".
std::string expectation(const Field& field, bool element = false);

}  // namespace temper::config
