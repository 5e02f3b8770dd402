#include "config/print.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "config/scalars.h"
#include "config/suggest.h"

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
    end_line(field.elements.size() == 0 ? " []" : "", path);
    for (size_t i = 0; i < field.elements.size(); ++i) {
      out_ += std::string(indent, ' ') + "- ";
      first_of_item_ = true;
      group(field.elements.at(i), fmt::format("{}[{}].", path, i), indent + 2);
    }
  }

  void end_line(const std::string& text, const std::string& path) {
    out_ += text + (root_.was_written(path) ? "  # written\n" : "\n");
  }

  const Schema& root_;
  std::string out_;
  bool first_of_item_ = false;  // the next key follows "- " on its line
};

class Helper {
 public:
  void keys(const Schema& schema, const std::string& prefix) {
    for (const auto& field : schema.fields()) key(*field, prefix + field->name);
  }

  void key(const Field& field, const std::string& path) {
    if (field.kind == Field::Kind::kGroup && field.is_rare) return rare_.emplace_back(&field, path), void();
    if (field.kind == Field::Kind::kGroup) return group(field, path);
    const bool element = path.find("[]") != std::string::npos;  // not a flag of its own
    out_ += fmt::format("  {}{}\n      {}\n      expects {}; ", element ? "" : "--", path, field.description,
                        expectation(field));
    if (field.kind == Field::Kind::kList) {
      out_ += "each mapping has the keys\n";
      keys(*field.group, path + "[].");
    } else {
      out_ += field.is_required ? "required\n" : fmt::format("default {}\n", print_value(field.initial));
    }
  }

  std::string take() {
    for (const auto& [field, path] : rare_) group(*field, path);
    return std::move(out_);
  }

 private:
  void group(const Field& field, const std::string& path) {
    out_ += fmt::format("\n{}: {}\n", path, field.description);
    keys(*field.group, path + ".");
  }

  std::string out_;
  std::vector<std::pair<const Field*, std::string>> rare_;
};

// "adapters[].rank" and "adapters[0].rank" are "adapters.rank".
std::string without_elements(std::string path) {
  for (size_t open = path.find('['); open != std::string::npos; open = path.find('['))
    path.erase(open, std::min(path.find(']', open), path.size() - 1) - open + 1);
  return path;
}

}  // namespace

std::string dump(const Schema& schema) {
  Dumper dumper(schema);
  dumper.group(schema, "", 0);
  return "# The resolved configuration; what was written by the user is marked, the rest are defaults.\n" +
         dumper.take();
}

std::string help(const Schema& schema) {
  Helper helper;
  helper.keys(schema, "");
  return helper.take();
}

std::string help_of(const Schema& schema, std::string key) {
  while (key.starts_with('-')) key.erase(0, 1);
  key = without_elements(key);
  const std::vector<std::string> paths = all_paths(schema);
  std::vector<std::string> found;
  for (const std::string& path : paths)
    if (without_elements(path) == key) found = {path};
  if (found.empty())
    std::copy_if(paths.begin(), paths.end(), std::back_inserter(found),
                 [&](const std::string& path) { return without_elements(path).ends_with("." + key); });
  if (found.empty()) fail_unknown(schema, key, "--help");
  Helper helper;
  for (const std::string& path : found) helper.key(*schema.find_path(path), path);
  return helper.take();
}

}  // namespace temper::config
