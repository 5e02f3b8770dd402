#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/waited.h"

namespace temper::collectives {

struct RankDeadlines {
  double start = 25;  // seconds without news until all ranks have found each other
  double loss = 3;    // for the launcher of MPI to end the others where a rank was lost
  double end = 25;    // without one that ends or frees memory, once the first rank has ended
  double stop = 10;   // that a rank or mpirun is stopped (SIGSTOP) while others are not
  double early = 8;   // for ranks that have not found each other to end when they are asked to
  double ends = 600;  // from the end of the first rank to that of the last, whatever they free
};

// What the launcher knows of the ranks that it has started: each holds a connection (launcher_line.h) as long
// as it lives. The launcher of MPI says nothing of ranks that are stopped, and may wait forever where one is
// killed while ranks look for each other.
class RankWatch {
 public:
  RankWatch(int ranks, RankDeadlines deadlines);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  const std::string& name() const { return name_; }  // of the socket
  // The process that starts the ranks, mpirun, is looked at, too.
  void set_launcher(pid_t process) { launcher_ = process; }
  // Hears what ranks say, for so long at most.
  void listen(double seconds);
  // Each rank gets SIGUSR1 once, also one that comes later.
  void ask_to_stop();
  // Why the ranks cannot go on ("rank 1 (process 412) was lost"); empty while they can.
  std::string trouble();
  // Kills the processes that are left. Whether there were any.
  bool kill_all();
  bool are_ready() const { return ready_ == ranks_; }  // have been: they found each other
  bool are_gone() const { return lines_.empty(); }
  // The first rank that was lost, "rank 1 (process 412)"; empty: none was.
  const std::string& lost() const { return lost_; }

 private:
  struct Line;
  void accept();
  void read_line(Line& line);
  std::string describe(const Line& line) const;
  void look_at_memory();
  std::string missing() const;
  std::string stopped();

  const int ranks_;
  const RankDeadlines deadlines_;
  std::string name_;
  int socket_ = -1;
  std::vector<std::unique_ptr<Line>> lines_;  // of ranks that live
  int ready_ = 0;                             // ranks so far
  std::vector<char> is_ready_;
  pid_t launcher_ = 0;  // 0: none
  std::optional<Waited> launcher_stopped_;
  bool stops_ = false;
  Waited waited_;
  struct Moments {
    double asked = 0;            // when stops_ became true
    double news = 0;             // when a rank came or was ready last
    double lost = 0, ended = 0;  // when the first one was, and has; 0: none was, none has
    double freed = 0;            // when one ended or freed memory last
  } at_;
  double now_ = 0;                      // of waited_, when it was looked at last
  std::optional<int64_t> least_pages_;  // that ranks had since one ended
  std::string lost_;
};

}  // namespace temper::collectives
