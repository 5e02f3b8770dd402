#include "templates/run/scopes.h"

#include "base/error.h"

namespace temper::templates {
namespace {

constexpr size_t kMostScopes = 1 << 20;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope; scope = scope->parent)
    for (const auto& [known, value] : scope->names)
      if (known == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [known, slot] : names)
    if (known == name) {
      slot = std::move(value);
      return;
    }
  names.emplace_back(name, std::move(value));
}

void Scopes::enter_for_good() { now_ = &all_.emplace_back(Scope{now_, true, {}}); }

Scope* Scopes::keep() {
  for (Scope* scope = now_; scope && !scope->kept; scope = scope->parent) scope->kept = true;
  return now_;
}

Scopes::Inside::Inside(Scopes& scopes, Scope* around) : scopes_(scopes), before_(scopes.now_) {
  if (scopes_.all_.size() >= kMostScopes) fail("the template keeps more than {} blocks", kMostScopes);
  scopes_.all_.push_back({around, false, {}});
  scopes_.now_ = &scopes_.all_.back();
}

Scopes::Inside::~Inside() {
  const bool last = scopes_.now_ == &scopes_.all_.back();
  if (last && !scopes_.now_->kept) scopes_.all_.pop_back();
  scopes_.now_ = before_;
}

}  // namespace temper::templates
