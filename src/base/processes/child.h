#pragma once
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace temper {

// A program that runs at the same time as this one, with pipes to its standard input and from its output and
// errors. It is the head of a process group, and ends with the thread that started it (and so with this
// process), even when that is killed, and with it all that it has started, in sessions of their own, too
// (base/processes/child_guard.h; the main() of this process must call serve_as_guard). It inherits no other
// file of this process, and signals as they are by default.
class Child {
 public:
  // `words`: the program's path and its arguments. An Error (kResources) says why it cannot be started. May
  // be called while other threads run.
  explicit Child(const std::vector<std::string>& words);
  ~Child();  // as stop()
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Ends of pipes that do not block. Writing to a program that has ended raises SIGPIPE, which the caller's
  // thread has to block.
  int input() const { return input_; }
  int output() const { return output_; }
  int errors() const { return errors_; }
  void close_input();
  void close_errors();  // -1 from then on

  // How it ended by itself, as waitpid() has it; none while it runs.
  std::optional<int> ended() const;
  // Kills it with all processes that it has started, and waits for it. Once.
  void stop();

 private:
  pid_t process_ = -1;
  int input_ = -1, output_ = -1, errors_ = -1;
};

// "ended with exit code 1", "was ended by signal 11 (Segmentation fault)"
std::string describe_end(int status);

// The path of a program as a shell finds it: by its name in PATH, or as it is where it has a '/'. Empty where
// there is no such program, or it may not be run.
std::string find_program(const std::string& name);

}  // namespace temper
