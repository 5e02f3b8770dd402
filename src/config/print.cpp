#include "config/print.h"

#include "base/error.h"
#include "config/scalars.h"

namespace temper::config {
namespace {

class Dumper {
 public:
  explicit Dumper(const Schema& root) : root_(root) {}

  void group(const Schema& schema, const std::string& path, size_t indent) {
    for (const auto& field : schema.fields()) {
      const std::string key = path + field->name;
      out_ += std::string(first_of_item_ ? 0 : indent, ' ') + field->name + ":";
      first_of_item_ = false;
      if (field->kind == Field::Kind::kValue) {
        end_line(fmt::format(" {}", print_value(field->get())), key);
      } else if (field->kind == Field::Kind::kGroup) {
        out_ += field->group->fields().empty() ? " {}\n" : "\n";
        group(*field->group, key + ".", indent + 2);
      } else {
        list(*field, key, indent + 2);
      }
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void list(const Field& field, const std::string& path, size_t indent) {
    end_line(field.size() == 0 ? " []" : "", path);
    for (size_t i = 0; i < field.size(); ++i) {
      out_ += std::string(indent, ' ') + "- ";
      first_of_item_ = true;
      group(field.element(i), fmt::format("{}[{}].", path, i), indent + 2);
    }
  }

  void end_line(const std::string& text, const std::string& path) {
    out_ += text + (root_.was_written(path) ? "  # written\n" : "\n");
  }

  const Schema& root_;
  std::string out_;
  bool first_of_item_ = false;  // the next key follows "- " on its line
};

void help_keys(const Schema& schema, const std::string& prefix, std::string& out) {
  for (const auto& field : schema.fields()) {
    const std::string path = prefix + field->name;
    if (field->kind == Field::Kind::kGroup) {
      out += fmt::format("\n{}: {}\n", path, field->description);
      help_keys(*field->group, path + ".", out);
      continue;
    }
    const bool element = path.find("[]") != std::string::npos;  // not a flag of its own
    out += fmt::format("  {}{}\n      {}\n      expects {}; ", element ? "" : "--", path, field->description,
                       expectation(*field));
    if (field->kind == Field::Kind::kList) {
      out += "each mapping has the keys\n";
      help_keys(*field->group, path + "[].", out);
    } else {
      out += field->is_required ? "required\n" : fmt::format("default {}\n", print_value(field->initial));
    }
  }
}

}  // namespace

std::string dump(const Schema& schema) {
  Dumper dumper(schema);
  dumper.group(schema, "", 0);
  return "# The resolved configuration; what was written by the user is marked, the rest are defaults.\n" +
         dumper.take();
}

std::string help(const Schema& schema) {
  std::string out;
  help_keys(schema, "", out);
  return out;
}

}  // namespace temper::config
