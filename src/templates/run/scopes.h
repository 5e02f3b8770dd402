#pragma once
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "templates/values/value.h"

namespace temper::templates {

using Variables = std::vector<std::pair<std::string, Value>>;  // names and values

// The names of one block; lookups go on to the blocks around it.
struct Scope {
  Scope* parent = nullptr;
  bool kept = false;  // a macro refers to it
  Variables names;
  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};

// The scopes of a template that runs, the innermost one at hand.
class Scopes {
 public:
  Scope& now() { return *now_; }
  const Value* find(std::string_view name) const { return now_->find(name); }
  void set(std::string_view name, Value value) { now_->set(name, std::move(value)); }
  void enter_for_good();  // a scope that lives to the end
  // What is called later still sees the names around it: the scope at hand and those around it live to the
  // end.
  Scope* keep();

  // Enters a scope within `around`; leaves it at the end, and forgets it unless it is kept. An Error where a
  // template keeps too many.
  class Inside {
   public:
    Inside(Scopes& scopes, Scope* around);
    explicit Inside(Scopes& scopes) : Inside(scopes, scopes.now_) {}
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    Scopes& scopes_;
    Scope* before_;
  };

 private:
  std::deque<Scope> all_;
  Scope* now_ = nullptr;
};

}  // namespace temper::templates
