#pragma once
#include <deque>

#include "templates/run/scopes.h"

namespace temper::templates {

// Sets the functions that every template can call. `namespaces`: where those that a template makes live.
void add_globals(Scopes& scopes, std::deque<Namespace>& namespaces);

}  // namespace temper::templates
