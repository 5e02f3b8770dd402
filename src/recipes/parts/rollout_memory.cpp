#include "recipes/parts/rollout_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper::recipes {
namespace {

int64_t round_up_to(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

int64_t cache_bytes(const Pool& pool) { return pool.usage()[static_cast<size_t>(MemoryTag::kKvCache)].live; }

// Blocks are rounded up, so that many pages say more than one.
int64_t measure_page(const layers::Decoder& model, const Pool& memory, int64_t page_tokens) {
  constexpr int64_t kPages = 256;
  const int64_t before = cache_bytes(memory);
  const auto bytes_of = [&](int64_t pages) {
    const layers::PagedStates states = model.make_pages({pages, page_tokens, 1});
    return cache_bytes(memory) - before;
  };
  return (bytes_of(kPages + 1) - bytes_of(1)) / kPages;
}

// Requests that decode, as many as run at once, and together with them a prompt that fills its part of a
// pass.
void run_engine(const layers::Decoder& model, const layers::Adapter* adapter, const RolloutSettings& wish) {
  rollout::EngineOptions options = wish.engine;
  options.prefix_cache = false;  // each request computes all of its tokens
  rollout::Engine engine(model, options);
  const auto add = [&](int64_t prompt, int64_t answer) {
    rollout::Request request;
    request.prompt.assign(static_cast<size_t>(prompt), 0);
    request.max_new_tokens = answer;
    request.adapter = adapter;
    engine.add(request);
  };
  const int64_t room = options.cache_tokens / options.page_tokens * options.page_tokens,
                longest = std::min({wish.longest, model.config().max_positions, room});
  constexpr int64_t kPasses = 3;
  for (int64_t i = 1; i < options.max_running; ++i) add(1, std::min(kPasses, longest - 1));
  add(longest - 1, 1);
  while (engine.step()) {
  }
}

}  // namespace

int64_t RolloutMemory::least_cache() const {
  const int64_t page = wish.engine.page_tokens;
  return wish.may_shrink ? std::min(wish.engine.cache_tokens, round_up_to(wish.longest, page))
                         : wish.engine.cache_tokens;
}

void RolloutMemory::check_host(int64_t copies, int64_t free) const {
  if (kept_bytes == 0 || copies + kept_bytes <= free) return;
  fail_resources(
      "[grpo.engine.sleep] the optimizer's state takes {} of the CPU's memory while it sleeps, {} besides, "
      "and {} "
      "are free for each rank; take optimizer out of grpo.engine.sleep, or use more ranks that share the "
      "states "
      "(parallel.shard)",
      format_bytes(kept_bytes), copies > 0 ? "copies of checkpoints " + format_bytes(copies) : "nothing",
      format_bytes(free));
}

MemoryPlan RolloutMemory::with_cache(int64_t tokens) const {
  MemoryPlan made = plan;
  const int64_t less = (wish.engine.cache_tokens - tokens) / wish.engine.page_tokens * page_bytes;
  made.peaks[static_cast<size_t>(MemoryTag::kKvCache)] -= less;
  made.total -= less;
  return made;
}

int64_t RolloutMemory::cache_that_fits(int64_t limit, Device device) const {
  const int64_t page = wish.engine.page_tokens;
  if (plan.total <= limit) return wish.engine.cache_tokens;
  // A plan may be wrong by 5 %: no cache shall take what passes turn out to need.
  const int64_t passes = with_cache(0).total, without = passes + passes / 20,
                fits = std::max<int64_t>(0, limit - without) / std::max<int64_t>(1, page_bytes) * page;
  if (fits >= least_cache()) return std::min(fits, wish.engine.cache_tokens);
  fail_resources(
      "[grpo.engine.cache_tokens] a rollout needs {} without its cache, and a token of the cache {}: of {} "
      "that may "
      "be used on {} {} tokens of cache would fit, and {} needs {}. Set {}shorter answers "
      "(grpo.sampling.max_new_tokens, data.max_length), or fewer at once (grpo.engine.batch){}",
      format_bytes(without), format_bytes(page_bytes / page), format_bytes(limit), to_string(device), fits,
      wish.may_shrink ? "the longest request" : "the configuration", least_cache(),
      wish.may_shrink ? "" : "fewer grpo.engine.cache_tokens, ",
      wish.asleep.empty() && is_apart(device) ? ", or grpo.engine.sleep: [optimizer, gradients]" : "");
}

RolloutMemory rehearse_rollout(const layers::Decoder& model, layers::ParameterStore& trained,
                               const layers::Adapter* adapter, const RolloutSettings& wish) {
  RolloutMemory made{.wish = wish};
  const Device device = model.parameters().device();
  Pool& memory = pool(device);
  const training::RolloutTurn turn(trained, wish.asleep);
  made.kept_bytes = turn.kept_bytes();
  made.page_bytes = measure_page(model, memory, wish.engine.page_tokens);
  memory.reset_peak();
  run_engine(model, adapter, wish);
  const MemoryUsage usage = memory.usage();
  for (size_t i = 0; i < usage.size(); ++i) made.plan.peaks[i] = usage[i].paused ? 0 : usage[i].peak;
  made.plan.total = memory.peak_live();
  // On a CPU what is kept lies in the same memory.
  if (!is_apart(device)) made.plan.total += made.kept_bytes;
  return made;
}

std::string phases_table(const MemoryPlan& updates, const RolloutMemory& rollouts, int64_t cache_tokens) {
  const MemoryPlan plan = rollouts.with_cache(cache_tokens);
  std::string out = fmt::format("{:<12} {:>12} {:>12}\n", "planned", "updates", "rollouts");
  const auto row = [&](std::string_view name, int64_t of_updates, int64_t of_rollouts) {
    out += fmt::format("{:<12} {:>12} {:>12}\n", name, format_bytes(of_updates), format_bytes(of_rollouts));
  };
  for (size_t i = 0; i < plan.peaks.size(); ++i)
    row(to_string(static_cast<MemoryTag>(i)), updates.peaks[i], plan.peaks[i]);
  row("total", updates.total, plan.total);
  out += fmt::format("KV cache: {} tokens ({} requested).", cache_tokens, rollouts.wish.engine.cache_tokens);
  if (rollouts.kept_bytes > 0)
    out += fmt::format(" Offloaded to the CPU during rollouts: {}.", format_bytes(rollouts.kept_bytes));
  return out + "\n";
}

}  // namespace temper::recipes
