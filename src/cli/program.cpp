// The one file that includes CLI11.
#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "base/text.h"
#include "version.h"

namespace temper::cli {

struct Options::Impl {
  CLI::App* app;
};

void Options::positional(const std::string& name, std::string& value, const std::string& help,
                         bool required) {
  impl_.app->add_option(name, value, help)->required(required);
}
void Options::positional(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  impl_.app->add_option(name, values, help)->required();
}
void Options::option(const std::string& name, std::string& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
}
void Options::option(const std::string& name, std::vector<std::string>& values, const std::string& help) {
  impl_.app->add_option(name, values, help);
}
void Options::option(const std::string& name, int64_t& value, const std::string& help) {
  impl_.app->add_option(name, value, help)->capture_default_str();
}
void Options::option(const std::string& name, std::optional<int64_t>& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
}
void Options::option(const std::string& name, std::optional<double>& value, const std::string& help) {
  impl_.app->add_option(name, value, help);
}
void Options::flag(const std::string& name, bool& value, const std::string& help) {
  impl_.app->add_flag(name, value, help);
}
void Options::raw(std::vector<std::string>& arguments) {
  impl_.app->prefix_command();
  impl_.app->set_help_flag();
  impl_.app->callback([app = impl_.app, &arguments] { arguments = app->remaining(); });
}
void Options::footer(const std::string& text) { impl_.app->footer(text); }

namespace {

// The sub-command of that name, or null.
CLI::App* find_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name) return const_cast<CLI::App*>(command);
  return nullptr;
}

}  // namespace

struct Program::State {
  CLI::App app{"Temper post-trains large language models.", "temper"};
  std::vector<std::pair<CLI::App*, std::function<int()>>> commands;
};

Program::Program() : state_(std::make_unique<State>()) {
  state_->app.set_version_flag("--version", "temper " TEMPER_VERSION);
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
    parent = existing != nullptr ? existing : parent->add_subcommand(group, "commands about " + group);
    parent->require_subcommand(1);
  }
  Options::Impl impl{parent->add_subcommand(last, summary)};
  Options options(impl);
  state_->commands.emplace_back(impl.app, declare(options));
}

namespace {

// A mistyped command gets the nearest name; CLI11's own message names only what was left over.
std::string explain(const CLI::App& app, int argc, char** argv, const CLI::ParseError& error) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (argc > 1 && argv[1][0] != '-' && find_command(app, argv[1]) == nullptr) {
    const std::string nearest = nearest_name(argv[1], names);
    return fmt::format("unknown command '{}'{} Commands are [{}]", argv[1],
                       nearest.empty() ? "." : fmt::format("; did you mean '{}'?", nearest), join(names));
  }
  return fmt::format("{}; see 'temper --help' or 'temper COMMAND --help'", error.what());
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
    return state_->app.exit(success);  // help and version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "temper: %s\n", explain(state_->app, argc, argv, error).c_str());
    return static_cast<int>(ErrorKind::kInput);
  } catch (const Error& error) {
    std::fprintf(stderr, "temper: %s\n", error.what());
    return static_cast<int>(error.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "temper: out of memory; use a smaller micro-batch, sequence length or model\n");
    return static_cast<int>(ErrorKind::kResources);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "temper: %s (a defect of Temper; please report it)\n", error.what());
    return static_cast<int>(ErrorKind::kDefect);
  }
}

}  // namespace temper::cli
