#pragma once

namespace temper {

// For a whole program, at its start. A file larger than the system allows is an Error where it is written,
// not the process's end (SIGXFSZ is ignored). A mapped file that is cut short, or whose disk fails, ends the
// process with one sentence and exit code 2 instead of a core dump (SIGBUS).
void handle_file_signals();

}  // namespace temper
