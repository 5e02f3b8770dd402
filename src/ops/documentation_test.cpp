#include <gtest/gtest.h>

#include <sstream>

#include "base/files.h"
#include "ops/op_info.h"
#include "ops/report.h"

namespace temper::ops {
namespace {

constexpr int kGpuColumn = 3;

bool has(std::string_view op, std::string_view provider) {
  for (const KernelInfo& kernel : op_infos().find(op)->kernels())
    if (kernel.provider == provider) return true;
  return false;
}

// A build that skipped a room for GPUs lacks its kernels: their column is then not compared.
std::string comparable(const std::string& table) {
  if (has("adamw", "cuda") && has("linear", "cublaslt") && has("attention", "cudnn")) return table;
  std::string rest;
  int column = -1;
  for (const char c : table) {
    if (c == '|') ++column;
    if (c == '\n') column = -1;
    if (column != kGpuColumn) rest += c;
  }
  return rest;
}

// The lines of ops that a document has a line of.
std::string documented(const std::string& table, const std::string& document) {
  std::string rest, line;
  for (std::istringstream lines(table); std::getline(lines, line);)
    if (document.find(line.substr(0, line.find('|', 1) + 1)) != std::string::npos) rest += line + "\n";
  return rest;
}

TEST(Documentation, TheTableOfKernelsIsThatOfTheRegistry) {
  const std::string document = read_file(TEMPER_SOURCE_DIR "/docs/kernels.md");
  const size_t begin = document.find("\n| op | field |") + 1, end = document.find("|\n\n", begin) + 2;
  const std::string table = document.substr(begin, end - begin);
  EXPECT_EQ(comparable(table), documented(comparable(kernel_table()), table))
      << "docs/kernels.md is stale; replace its table by the output of `temper ops --table`:\n"
      << kernel_table();
}

}  // namespace
}  // namespace temper::ops
