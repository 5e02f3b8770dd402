#include "ops/probe.h"
#include "ops/embedding/embedding.h"

namespace temper::ops {

ProbeRun embedding_probe(const std::string& provider, DType dtype, const HardwareFacts& facts) {
  const Tensor ids = probe_ints(facts, 1, kProbeTokens, kProbeVocab);
  const Tensor table = probe_values(facts, 2, {kProbeVocab, kProbeHidden}, dtype);
  const Tensor dy = probe_values(facts, 9, {kProbeTokens, kProbeHidden}, dtype);
  return [=, ops = bind_probe<Embedding>(provider, {dtype, kProbeHidden}, facts)] {
    Tape tape;
    const Var v = tape.variable(table);
    return probe_backward(tape, embedding(tape, ops, ids, v), dy, {&v});
  };
}

}  // namespace temper::ops
