#pragma once
#include <csignal>

namespace temper {

// Between this program and one that it starts (base/processes/child.h) there is a guard: this program again,
// in a process of its own, to which the kernel gives every process that the other one has started and left,
// also those in sessions of their own. It ends as the started program ended, or when it gets a signal to end
// or the thread that started it is gone; before that it kills all of them. Out of its reach are processes of
// other users.
inline constexpr const char* kGuardName = "temper-guard";  // the guard's argv[0]
// Its arguments are the process that starts it, in digits, and the program's words; this file is where it
// writes errno when the program cannot be run, and closes when it runs.
inline constexpr int kGuardFailureFile = 3;

// What tells a guard to end; others send SIGTERM to all processes of a job, which the guard leaves to the
// program.
inline int guard_stop_signal() { return SIGRTMAX; }

// The first call of every main(): in a guard's process it does not return.
void serve_as_guard(int argc, char** argv);

}  // namespace temper
