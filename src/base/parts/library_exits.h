#pragma once

namespace temper {

// A library may end the process when it can have no thread (OpenMP does): from now on that is the exit code
// of ErrorKind::kResources and a sentence with the limits, instead of its own code. For a whole program, at
// its start.
void report_exits_of_libraries();

// The program ends by itself.
void leave_exit_to_program();

}  // namespace temper
