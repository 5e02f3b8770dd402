#include "backends/cudnn/padded_backward.h"

#include "backends/cudnn/packing.h"
#include "backends/gpu/attention_operands.h"
#include "tensor/host_inputs.h"

namespace temper::backends::cudnn {
namespace {

using ops::Attention;

constexpr int64_t kMostRagged = 128;  // head_dim

// A document's part of a call, in the middle of zeros.
struct Padded {
  Padded(const Attention& op, const PackedDocument& document)
      : document(document), length(rounded_length(document.keys)), before(document.keys - document.queries) {
    plain.q = queries(op.q);
    plain.k = keys(op.k);
    plain.v = keys(op.v);
    plain.cu_seqlens_q = plain.cu_seqlens_k = Tensor::from(std::vector{0, static_cast<int32_t>(length)});
    plain.scale = op.scale;
    plain.window = op.window;
  }

  Tensor queries(const Tensor& all) const { return padded(all, document.query, before, document.queries); }
  Tensor keys(const Tensor& all) const { return padded(all, document.key, 0, document.keys); }

  // Logs of a plain batch are [documents, heads, length]. Those of nothing may be anything finite.
  Tensor logs(const Tensor& of_tokens) const {
    return queries(of_tokens).transpose(0, 1).contiguous().reshape({1, of_tokens.dim(1), length});
  }

  void write(const Attention::Grads& all, const Attention::Grads& own) const {
    all.q.narrow(0, document.query, document.queries).copy_from(own.q.narrow(0, before, document.queries));
    all.k.narrow(0, document.key, document.keys).copy_from(own.k.narrow(0, 0, document.keys));
    all.v.narrow(0, document.key, document.keys).copy_from(own.v.narrow(0, 0, document.keys));
  }

  PackedDocument document;
  int64_t length, before;
  Attention plain;

 private:
  Tensor padded(const Tensor& all, int64_t first, int64_t to, int64_t count) const {
    Shape shape = all.shape();
    shape[0] = length;
    const Tensor made = Tensor::empty(shape, all.dtype(), MemoryTag::kWorkspace, all.device());
    made.fill_zero();
    made.narrow(0, to, count).copy_from(all.narrow(0, first, count));
    return made;
  }
};

// All that the copies depend on.
std::vector<int32_t> places_of(const Packing& packing) {
  std::vector<int32_t> places;
  for (const Tensor* starts : {&packing.cu_seqlens_q, &packing.cu_seqlens_k})
    places.insert(places.end(), starts->values<int32_t>().begin(), starts->values<int32_t>().end());
  return places;
}

}  // namespace

bool is_padded_backward(const Attention& op) {
  return op.q.dim(2) > kMostRagged && common_length(packed_documents(op), op) == 0;
}

Attention::Grads padded_backward(const Attention& op, const Attention::Output& out, const Tensor& dy,
                                 const PlainBackward& backward) {
  const Packing packing = packing_of(op, false);
  take_for_granted(name_of(packing) + " padded",
                   [packing, found = places_of(packing)] { return places_of(packing) == found; });
  const Attention::Grads grads = empty_gradients(op, false);
  grads.k.fill_zero();  // keys of documents without queries
  grads.v.fill_zero();
  for (const PackedDocument& document : packed_documents(op)) {
    const Padded padded(op, document);
    const Attention::Output own{padded.queries(out.y), padded.logs(out.lse)};
    padded.write(grads, backward(padded.plain, own, padded.queries(dy)));
  }
  return grads;
}

}  // namespace temper::backends::cudnn
