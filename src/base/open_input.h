#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

// Throws an Error "[path] cannot ACTION: REASON" for an errno; a full disk is kResources.
[[noreturn]] void fail_system(std::string_view action, const std::string& path, int error);

// What may be given as an input. A pipe in a folder may have no writer, and a device has no end: opening or
// reading them could take forever.
enum class InputKind {
  kFile,    // regular files, which can be read more than once and have a size
  kStream,  // also what is read once: a pipe that a shell made (/dev/stdin, <(command)), a terminal,
            // /dev/null
};

// Opens for reading what the caller has to close; more files are allowed where the process has too many. An
// Error where there is none, or where it is of another kind: it says which, and what to do.
int open_input(const std::string& path, InputKind kind);

}  // namespace temper
