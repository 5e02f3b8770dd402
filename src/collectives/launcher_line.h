#pragma once
#include <string>
#include <string_view>

// How ranks that this program has started itself (start_ranks.h) and their launcher know of each other: a
// Unix socket of the launcher's, which each rank holds open as long as it lives. A message is one packet.
namespace temper::collectives {

inline constexpr const char* kLauncherVariable =
    "TEMPER_LAUNCHER";  // the socket's name, in the abstract namespace

// What a rank says, in this order.
inline constexpr std::string_view kIsHere = "here ", kIsReady = "ready", kEnds = "ends";

// For a whole program, at its start: where a launcher of this program has started it as a rank, says so, and
// ends with the process that has started it. Does nothing elsewhere. Ends the process where the launcher is
// gone.
void join_launcher();

// Ranks that meet have found each other.
void notify_launcher_ready();
// This rank ends, with or without an error that it reports; it is not lost.
void notify_launcher_end();

}  // namespace temper::collectives
