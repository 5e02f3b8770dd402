#include "device/host_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/files.h"
#include "device/memory.h"

namespace temper::device {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// Folders as a kernel shows them.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    write("proc/meminfo",
          "MemTotal:       99999999 kB\nMemFree:          100 kB\nMemAvailable:   8388608 kB\n");
  }
  void write(const std::string& name, const std::string& text) {
    const std::string path = files_ / name;
    make_directories(path.substr(0, path.rfind('/')));
    write_file(path, text);
  }
  HostMemory found() const { return host_memory(files_ / "proc", files_ / "cgroup"); }
  void expect(int64_t bytes, const std::string& limited_by) const {
    EXPECT_EQ(found().bytes, bytes);
    EXPECT_EQ(found().limited_by, limited_by);
  }

  TemporaryDirectory files_;
};

TEST_F(HostMemoryTest, IsWhatTheMachineHasFree) { expect(8 * kGiB, ""); }

TEST_F(HostMemoryTest, OfGroupsOfVersion2IsTheLeastOfAllAbove) {
  write("proc/self/cgroup", "0::/user/run\n");
  write("cgroup/user/run/memory.max", "max\n");
  write("cgroup/user/run/memory.current", "1073741824\n");
  expect(8 * kGiB, "");
  write("cgroup/user/memory.max", "4294967296\n");
  write("cgroup/user/memory.current", "2147483648\n");
  expect(2 * kGiB, "cgroup /user (memory.max)");
  write("cgroup/user/memory.stat", "active_file 5\ninactive_file 1073741824\nslab 9\n");
  expect(3 * kGiB, "cgroup /user (memory.max)");
  write("cgroup/memory.max", "1073741824\n");
  write("cgroup/memory.current", "2147483648\n");
  expect(0, "cgroup / (memory.max)");
}

TEST_F(HostMemoryTest, OfGroupsOfVersion1) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/7f\n2:cpuset:/docker/7f\n");
  write("cgroup/memory/docker/7f/memory.limit_in_bytes", "3221225472\n");
  write("cgroup/memory/docker/7f/memory.usage_in_bytes", "1073741824\n");
  expect(2 * kGiB, "cgroup /docker/7f (memory.limit_in_bytes)");
  write("cgroup/memory/docker/7f/memory.stat", "inactive_file 7\ntotal_inactive_file 536870912\n");
  expect(2 * kGiB + kGiB / 2, "cgroup /docker/7f (memory.limit_in_bytes)");
  // No limit is a very large number there.
  write("cgroup/memory/docker/7f/memory.limit_in_bytes", "9223372036854771712\n");
  expect(8 * kGiB, "");
}

// A container that sees its own group as the root.
TEST_F(HostMemoryTest, OfAContainerIsThatOfItsRoot) {
  write("proc/self/cgroup", "0::/not/shown/here\n");
  write("cgroup/memory.max", "1073741824\n");
  write("cgroup/memory.current", "73741824\n");
  expect(1000000000, "cgroup / (memory.max)");
}

TEST_F(HostMemoryTest, LimitsOfTheProcessCount) {
  rlimit before{};
  ::getrlimit(RLIMIT_DATA, &before);
  EXPECT_FALSE(counts_writable_memory());
  rlimit limit = before;
  limit.rlim_cur = 7 * kGiB;
  ::setrlimit(RLIMIT_DATA, &limit);
  const HostMemory some = found();
  EXPECT_TRUE(counts_writable_memory());
  ::setrlimit(RLIMIT_DATA, &before);
  EXPECT_LT(some.bytes, 7 * kGiB);
  EXPECT_EQ(some.limited_by, "ulimit -d");
}

}  // namespace
}  // namespace temper::device
