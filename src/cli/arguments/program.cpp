// The one file that includes CLI11.
#include "cli/arguments/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <sstream>
#include <system_error>

#include "base/error.h"
#include "base/parts/build.h"
#include "base/shown.h"
#include "base/text.h"
#include "cli/arguments/foreign_options.h"
#include "collectives/group.h"
#include "device/host_memory.h"

namespace temper::cli {

// What help shows of an option.
struct HelpLine {
  std::string names, help;
};

struct Options::Impl {
  CLI::App* app;
  std::shared_ptr<std::vector<HelpLine>> positionals = std::make_shared<std::vector<HelpLine>>();
  std::shared_ptr<std::vector<HelpLine>> options = std::make_shared<std::vector<HelpLine>>();
};

namespace {

// "-n,--max-new-tokens" and "N": "-n, --max-new-tokens N".
std::string shown(std::string names, const char* value) {
  if (const size_t comma = names.find(','); comma != std::string::npos) names.insert(comma + 1, " ");
  return *value == '\0' ? names : fmt::format("{} {}", names, value);
}

}  // namespace

void Options::positional(const std::string& name, std::string& value, const std::string& help,
                         bool required) {
  impl_.app->add_option(name, value, help)->required(required);
  impl_.positionals->push_back({name, help});
}
void Options::option(const std::string& name, std::string& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
  impl_.options->push_back({shown(name, "TEXT"), help});
}
void Options::option(const std::string& name, std::optional<std::string>& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
  impl_.options->push_back({shown(name, "TEXT"), help});
}
void Options::option(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  impl_.app->add_option(name, values, help);
  impl_.options->push_back({shown(name, "TEXT"), help});
}
void Options::option(const std::string& name, int64_t& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
  impl_.options->push_back({shown(name, "N"), help});
}
void Options::option(const std::string& name, std::optional<int64_t>& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
  impl_.options->push_back({shown(name, "N"), help});
}
void Options::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
  impl_.options->push_back({shown(name, "X"), help});
}
void Options::flag(const std::string& name, bool& value, const std::string& help) {
  impl_.app->add_flag(name, value, help)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  if (!help.empty()) impl_.options->push_back({shown(name, ""), help});
}
void Options::raw(std::vector<std::string>& arguments) {
  impl_.app->prefix_command();
  impl_.app->set_help_flag();
  impl_.app->callback([app = impl_.app, &arguments] { arguments = app->remaining(); });
}
void Options::example(const std::string& text) { impl_.app->footer(text); }

namespace {

// "temper data inspect".
std::string usage_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : fmt::format("{} {}", usage_of(*parent), app.get_name());
}

// One line an option, and an example: a screen of 80 columns and 24 lines, where a blank line, or one for
// the usage alone, may have no place.
std::string help_of(const CLI::App& app, const std::vector<HelpLine>& positionals,
                    const std::vector<HelpLine>& options) {
  std::string usage = usage_of(app), lines;
  const auto add = [&](const HelpLine& line) {
    lines += fmt::format("  {:<25} {}\n", line.names, line.help);
  };
  for (const HelpLine& line : positionals) {
    add(line);
    usage += " " + line.names;
  }
  for (const HelpLine& line : options) add(line);
  const std::string example =
      app.get_footer().empty() ? "" : fmt::format("\nExample: {}\n", app.get_footer());
  const std::string help = fmt::format("{}{}", lines, example);
  const auto left = 24 - std::ranges::count(help, '\n');
  std::string summary = app.get_description();
  if (left < 2)
    return fmt::format("{}: {} [OPTIONS]\n{}", summary.substr(0, summary.rfind('.')), usage, help);
  return fmt::format("{}\n  {} [OPTIONS]\n{}{}", summary, usage, left < 3 ? "" : "\n", help);
}

// The sub-command of that name, or null.
CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name) return const_cast<CLI::App*>(command);
  return nullptr;
}

// All commands fit on a screen: no empty line before the options.
class ShortFormatter : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string help = CLI::Formatter::make_help(app, std::move(name), mode);
    if (const size_t empty = help.find("\n\n"); empty != std::string::npos) help.erase(empty, 1);
    return help;
  }
};

}  // namespace

struct Program::State {
  CLI::App app{"Temper post-trains large language models.", "temper"};
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands;
};

Program::Program() : state_(std::make_unique<State>()) {
  state_->app.formatter(std::make_shared<ShortFormatter>());
  state_->app.get_formatter()->column_width(19);
  state_->app.set_version_flag("--version", "temper " + program_version());
  state_->app.require_subcommand(1);
}

Program::~Program() = default;

void Program::add(const std::string& name, const std::string& summary, const Declare& declare) {
  CLI::App* parent = &state_->app;
  std::string last = name;
  if (const size_t space = name.find(' '); space != std::string::npos) {
    last = name.substr(space + 1);
    const std::string group = name.substr(0, space);
    CLI::App* existing = find_command(*parent, group);
    parent = existing != nullptr ? existing : parent->add_subcommand(group, "Commands about " + group + ".");
    parent->require_subcommand(1);
  }
  Options::Impl impl{parent->add_subcommand(last, summary)};
  Options options(impl);
  state_->commands.emplace_back(impl.app, declare(options));
  // From CLI11 2.3 on a name is that of an argument or of an option, not of both.
  for (const HelpLine& positional : *impl.positionals)
    invariant(impl.app->get_option_no_throw("--" + positional.names) == nullptr,
              fmt::format("{}: '{}' names two arguments", name, positional.names));
  impl.app->formatter_fn([positionals = impl.positionals, options = impl.options](
                             const CLI::App* app, const std::string&, CLI::AppFormatMode) {
    return help_of(*app, *positionals, *options);
  });
}

void Program::add_raw(const std::string& name, const std::string& summary, const RunRaw& run) {
  add(name, summary, [&run](Options& options) {
    auto arguments = std::make_shared<std::vector<std::string>>();
    options.raw(*arguments);
    return [arguments, run] { return run(*arguments); };
  });
}

namespace {

// The command that an error is about; the program where none was named.
const CLI::App& command_of(const CLI::App& program, int argc, char** argv) {
  const CLI::App* command = &program;
  for (int i = 1; i < argc; ++i) {
    const CLI::App* below = find_command(*command, argv[i]);
    if (below == nullptr) break;
    command = below;
  }
  return *command;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

// Of a word that is no command, also behind one ("data inspct"); empty where there is none.
std::string explain_command(const CLI::App& program, int argc, char** argv) {
  const CLI::App* group = &program;
  std::string before;
  int i = 1;
  for (; i < argc; ++i) {
    const CLI::App* below = find_command(*group, argv[i]);
    if (below == nullptr) break;
    group = below;
    before += fmt::format("{} ", argv[i]);
  }
  std::vector<std::string> names;
  for (const CLI::App* command : group->get_subcommands({})) names.push_back(before + command->get_name());
  if (names.empty() || i == argc || argv[i][0] == '-') return "";
  const std::string given = before + argv[i], nearest = nearest_name(given, names);
  return fmt::format("unknown command '{}'{} Commands are [{}]", given,
                     nearest.empty() ? "." : fmt::format("; did you mean '{}'?", nearest), join(names));
}

// Of "Could not convert: --seed = abc".
std::string explain_value(const CLI::App& command, const std::string& said, const std::string& help) {
  const size_t begin = said.find("--"), equals = said.find(" = ");
  if (begin == std::string::npos || equals == std::string::npos) return fmt::format("{}; {}", said, help);
  const std::string name = said.substr(begin, equals - begin);
  const CLI::Option* option = command.get_option_no_throw(name);
  const bool integer = option != nullptr && option->get_type_name() == "INT";
  return fmt::format("option {} is '{}'; expected {}", name, said.substr(equals + 3),
                     integer ? "an integer" : "a number");
}

// CLI11's own messages name only what was left over.
std::string explain(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  if (const std::string unknown = explain_command(app, argc, argv); !unknown.empty()) return unknown;
  const CLI::App& command = command_of(app, argc, argv);
  const std::vector<std::string> options = option_names(command);
  const std::string said = error.what(), help = fmt::format("see '{} --help'", usage_of(command));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr &&
      said.find("At Most 1") != std::string::npos)
    return fmt::format("option {} is given twice; give it once", said.substr(0, said.find(':')));
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return explain_value(command, said, help);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return fmt::format("{}; {}", said, help);
  for (int i = 1; i < argc; ++i) {
    const std::string given = argv[i], name = given.substr(0, given.find('='));
    if (!given.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end())
      continue;
    if (const std::string other = other_command(command.get_name(), name); !other.empty())
      return fmt::format("unknown option '{}'; {}", name, other);
    const std::string meant = meant_option(given, options);
    return meant.empty() ? fmt::format("unknown option '{}'; {}", name, help)
                         : fmt::format("unknown option '{}'; did you mean '{}'?", name, meant);
  }
  return fmt::format("{}; {}", said, help);
}

// Help and version, without empty lines behind them: help fits a screen.
int show(const CLI::App& app, const CLI::Success& success) {
  std::ostringstream text;
  const int code = app.exit(success, text, text);
  std::string shown = text.str();
  while (shown.ends_with("\n\n")) shown.pop_back();
  std::fputs(shown.c_str(), stdout);
  return code;
}

}  // namespace

int Program::run(int argc, char** argv) {
  try {
    if (argc == 2 && std::string_view(argv[1]) == "help") throw CLI::CallForHelp();
    state_->app.parse(argc, argv);
    for (const auto& [command, action] : state_->commands)
      if (command->parsed()) return action();
    return 0;
  } catch (const CLI::Success& success) {
    return show(state_->app, success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "temper: %s\n", shown_message(explain(state_->app, argc, argv, error)).c_str());
    return static_cast<int>(ErrorKind::kInput);
  } catch (const collectives::StoppedByAnother& error) {
    return static_cast<int>(error.kind());
  } catch (const Error& error) {
    std::fprintf(stderr, "temper: %s\n", shown_message(error.what()).c_str());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "temper: out of memory%s; use a smaller micro-batch, sequence length or model\n",
                 device::named_limit().c_str());
    return static_cast<int>(ErrorKind::kResources);
  } catch (const std::system_error& error) {
    // Threads and their locks: the system has no more of them.
    std::fprintf(
        stderr,
        "temper: the system gives no more threads, descriptors or memory: %s; use fewer (OMP_NUM_THREADS, "
        "train.threads), or raise the limit (ulimit -a)\n",
        error.what());
    return static_cast<int>(ErrorKind::kResources);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "temper: %s (a defect of Temper; please report it)\n",
                 shown_message(error.what()).c_str());
    return static_cast<int>(ErrorKind::kDefect);
  }
}

}  // namespace temper::cli
