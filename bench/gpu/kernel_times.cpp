// Prints how long each kernel ran on the GPU, summed by name, when the program that loaded it ends:
//   CUDA_INJECTION64_PATH=…/libkernel_times.so program …
// SKIP_MS=n leaves out what ran in the first n milliseconds of GPU work; TOP=n prints n lines.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Sum {
  double milliseconds = 0;
  long count = 0;
};

std::mutex mutex;
std::map<std::string, Sum> sums;
uint64_t first = 0, begin = 0, end = 0;
double busy = 0;

void add(const char* name, uint64_t start, uint64_t stop) {
  if (first == 0) first = start;
  const char* skip = std::getenv("SKIP_MS");
  if (skip != nullptr && static_cast<double>(start - first) < std::atof(skip) * 1e6) return;
  if (begin == 0) begin = start;
  end = std::max(end, stop);
  Sum& sum = sums[name];
  sum.milliseconds += static_cast<double>(stop - start) / 1e6;
  busy += static_cast<double>(stop - start) / 1e6;
  ++sum.count;
}

void CUPTIAPI request(uint8_t** buffer, size_t* size, size_t* records) {
  *size = 8 << 20;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, *size));
  *records = 0;
}

void CUPTIAPI complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  const std::lock_guard lock(mutex);
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      add(kernel->name, kernel->start, kernel->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(record);
      add("[copy]", copy->start, copy->end);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      add("[clear]", set->start, set->end);
    }
  }
  std::free(buffer);
}

void report() {
  cuptiActivityFlushAll(1);
  const std::lock_guard lock(mutex);
  std::vector<std::pair<std::string, Sum>> all(sums.begin(), sums.end());
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.second.milliseconds > b.second.milliseconds; });
  const double span = static_cast<double>(end - begin) / 1e6;
  std::fprintf(stderr, "GPU busy %.1f of %.1f ms (%.1f %%)\n", busy, span, 100 * busy / span);
  const char* top = std::getenv("TOP");
  const size_t lines = top == nullptr ? 40 : static_cast<size_t>(std::atoi(top));
  for (size_t i = 0; i < std::min(lines, all.size()); ++i)
    std::fprintf(stderr, "%6.2f %%  %9.2f ms  %6ld x %8.1f us  %.110s\n",
                 100 * all[i].second.milliseconds / busy, all[i].second.milliseconds, all[i].second.count,
                 1e3 * all[i].second.milliseconds / static_cast<double>(all[i].second.count),
                 all[i].first.c_str());
}

}  // namespace

extern "C" int InitializeInjection() {
  cuptiActivityRegisterCallbacks(request, complete);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
  std::atexit(report);
  return 1;
}
