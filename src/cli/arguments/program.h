#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// A light face of the command-line library, so that only program.cpp pays for including it.
namespace temper::cli {

class Options {
 public:
  struct Impl;
  explicit Options(Impl& impl) : impl_(impl) {}

  void positional(const std::string& name, std::string& value, const std::string& help, bool required = true);
  void option(const std::string& name, std::string& value, const std::string& help);
  void option(const std::string& name, std::optional<std::string>& value, const std::string& help);
  void option(const std::string& name, std::vector<std::string>& values, const std::string& help);
  void option(const std::string& name, int64_t& value, const std::string& help);
  void option(const std::string& name, std::optional<int64_t>& value, const std::string& help);
  void option(const std::string& name, std::optional<double>& value, const std::string& help);
  // Without a help text it is not listed: a flag of all commands, which a page of docs/ explains.
  void flag(const std::string& name, bool& value, const std::string& help);
  // Everything after the command's name, unparsed (Program::add_raw).
  void raw(std::vector<std::string>& arguments);
  void example(const std::string& text);  // a command line, at the end of the help

 private:
  Impl& impl_;
};

// Declares a command's options and returns what runs it; the result is the exit code.
using Declare = std::function<std::function<int()>(Options&)>;

using RunRaw = std::function<int(const std::vector<std::string>& arguments)>;

class Program {
 public:
  Program();
  ~Program();
  // `name` may have a parent: "data inspect".
  void add(const std::string& name, const std::string& summary, const Declare& declare);
  // A command with dotted configuration flags, which reads everything after its name itself.
  void add_raw(const std::string& name, const std::string& summary, const RunRaw& run);
  // Parses and runs. Errors are printed as "temper: …" and become the exit code of their kind.
  int run(int argc, char** argv);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One function per command, one file each.
void add_train(Program& program);
void add_generate(Program& program);
void add_batch(Program& program);
void add_compare_logprobs(Program& program);
void add_chat(Program& program);
void add_merge(Program& program);
void add_data_inspect(Program& program);
void add_rollouts_show(Program& program);
void add_doctor(Program& program);
void add_init(Program& program);
void add_ops(Program& program);
void add_verify_layout(Program& program);
void add_plan(Program& program);
void add_quantize(Program& program);
void add_export(Program& program);
void add_eval(Program& program);
void add_weights_send(Program& program);

}  // namespace temper::cli
