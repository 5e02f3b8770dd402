#include "layers/context_division.h"

#include "base/error.h"
#include "base/text.h"

namespace temper::layers {
namespace {

constexpr int kMostProposed = 64;  // ranks

class Divisions {
 public:
  Divisions(const DecoderConfig& config, const Mesh& mesh) : config_(config), mesh_(mesh) {}

  // Why groups of `heads` of the ranks cannot exchange heads; empty: they can.
  std::string refusal(int ranks, int heads) const {
    if (ranks % heads != 0) return fmt::format("{} ranks are not groups of {}", ranks, heads);
    for (const Block& block : config_.blocks)
      if (std::string reason = block.on_tensor_ranks(mesh_.tensor).mixer->refuses_context(ranks, heads);
          !reason.empty())
        return reason;
    return {};
  }
  bool fits(int ranks, int heads) const { return refusal(ranks, heads).empty(); }

  // The most of `ranks` ranks that can, up to `limit`; 0: none.
  int most(int ranks, int limit) const {
    while (limit > 0 && !fits(ranks, limit)) --limit;
    return limit;
  }
  // Of several groups of several ranks; 0: there are none.
  int most_of_groups(int ranks) const {
    const int heads = most(ranks, ranks / 2);
    return heads > 1 ? heads : 0;
  }

  // "1, 2 or 4": the numbers up to the limit for which f holds.
  template <class F>
  static std::string numbers(int limit, const F& f) {
    std::vector<std::string> all;
    for (int number = 1; number <= limit; ++number)
      if (f(number)) all.push_back(std::to_string(number));
    if (all.size() < 2) return join(all);
    const std::string last = all.back();
    all.pop_back();
    return join(all) + " or " + last;
  }

  // ", or context_method to usp or ring": the other ways of these ranks.
  std::string other_methods(ContextMethod method) const {
    std::vector<std::string> all;
    const auto add = [&](ContextMethod other, bool possible) {
      if (other != method && possible) all.emplace_back(name_of(other));
    };
    add(ContextMethod::kHeads, fits(mesh_.context, mesh_.context));
    add(ContextMethod::kBoth, most_of_groups(mesh_.context) > 0);
    add(ContextMethod::kKeys, fits(mesh_.context, 1));
    return all.empty() ? "" : ", or context_method to " + join(all, " or ");
  }

 private:
  const DecoderConfig& config_;
  const Mesh& mesh_;
};

[[noreturn]] void refuse(const Divisions& divisions, const Mesh& mesh, std::string_view reason,
                         ContextMethod method) {
  fail("[parallel.context] is {}: {}; set context to {}{}", mesh.context, reason,
       Divisions::numbers(kMostProposed, [&](int ranks) { return divisions.fits(ranks, ranks); }),
       divisions.other_methods(method));
}

int heads_of_groups(const Divisions& divisions, const Mesh& mesh) {
  const int heads = divisions.most_of_groups(mesh.context);
  if (heads > 0) return heads;
  fail(
      "[parallel.context_method] is usp, but no number between 1 and {} divides both the {} context ranks "
      "and the heads of every layer; set context to {}{}",
      mesh.context, mesh.context,
      Divisions::numbers(4 * mesh.context, [&](int ranks) { return divisions.most_of_groups(ranks) > 0; }),
      divisions.other_methods(ContextMethod::kBoth));
}

}  // namespace

int context_heads_of(const DecoderConfig& config, const Mesh& mesh) {
  const Divisions divisions(config, mesh);
  if (mesh.context_heads > 0) {
    const std::string reason = divisions.refusal(mesh.context, mesh.context_heads);
    if (reason.empty()) return mesh.context_heads;
    const std::string possible =
        Divisions::numbers(mesh.context, [&](int heads) { return divisions.fits(mesh.context, heads); });
    if (possible.empty()) refuse(divisions, mesh, reason, ContextMethod::kAuto);
    fail("[parallel.context_heads] is {}: {}; set it to {}", mesh.context_heads, reason, possible);
  }
  if (mesh.context_method == ContextMethod::kBoth) return heads_of_groups(divisions, mesh);
  const bool chooses = mesh.context_method == ContextMethod::kAuto;
  const int wanted = mesh.context_method == ContextMethod::kKeys ? 1 : mesh.context,
            heads = chooses ? divisions.most(mesh.context, mesh.context)
                            : (divisions.fits(mesh.context, wanted) ? wanted : 0);
  if (heads == 0) refuse(divisions, mesh, divisions.refusal(mesh.context, wanted), mesh.context_method);
  return heads;
}

}  // namespace temper::layers
