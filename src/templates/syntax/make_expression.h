#pragma once
#include <memory>
#include <utility>

#include "templates/syntax/syntax.h"

namespace temper::templates {

template <class Node>
ExpressionPtr make_expression(int line, Node node) {
  return std::make_unique<const Expression>(Expression{line, std::move(node)});
}

}  // namespace temper::templates
