#pragma once

namespace temper {

// For a whole program, at its start: SIGINT, SIGTERM, SIGHUP and SIGUSR1, which launchers pass on to all
// ranks, end it at once, with one sentence and the exit code of ErrorKind::kInterrupted, where it does
// nothing that must be saved first (StopSignals). SIGHUP that is ignored stays so (nohup). SIGQUIT ends it in
// any case.
void end_on_signals();

// A launcher or another rank says why all end: this process ends without a sentence.
void end_silently();
bool ends_silently();

// Called before a signal ends the program: only what is safe in handlers of signals.
void set_exit_callback(void (*words)());

// The program is about to end, and says why: signals have no effect from now on.
void leave_end_to_program();

// Text written to a pipe or terminal without a reader is lost, and does not end the program (SIGPIPE is
// ignored).
void ignore_broken_pipes();

}  // namespace temper
