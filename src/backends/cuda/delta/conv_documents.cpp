#include "backends/cuda/delta/conv_documents.h"

#include <cstring>
#include <utility>
#include <vector>

#include "tensor/host_inputs.h"

namespace temper::backends {
namespace {

std::vector<ConvDocument> list_documents(const ops::Documents& documents) {
  std::vector<ConvDocument> all;
  for (int64_t d = 0; d < documents.count(); ++d)
    all.push_back({static_cast<int>(documents.start(d)), static_cast<int>(documents.length(d)),
                   static_cast<int>(documents.continues(d)), -1});
  for (size_t d = all.size(); d-- > 0;)
    if (all[d].continues >= 0)
      all[d].next = std::exchange(all[static_cast<size_t>(all[d].continues)].next, static_cast<int>(d));
  return all;
}

std::vector<ConvRun> list_runs(const ops::Documents& documents, int length, size_t most) {
  std::vector<ConvRun> all;
  for (int64_t d = 0; d < documents.count(); ++d)
    for (int64_t first = 0; first < documents.length(d); first += length)
      all.push_back({static_cast<int>(d), static_cast<int>(first),
                     static_cast<int>(std::min<int64_t>(length, documents.length(d) - first))});
  all.resize(most);
  return all;
}

template <class List>
Tensor bring(const std::string& what, const ops::Documents& documents, int count, Device device, List list) {
  using Entry = typename decltype(list())::value_type;
  const auto bytes = static_cast<int64_t>(sizeof(Entry)) * count;
  const auto name = fmt::format("convolution {} {} {}", what, name_of(documents.starts),
                                documents.continued.defined() ? name_of(documents.continued) : "");
  return from_host(name, {bytes}, DType::kU8, device, [list, bytes](std::byte* to) {
    std::memcpy(to, list().data(), static_cast<size_t>(bytes));
  });
}

}  // namespace

ConvLists conv_lists(const ops::Documents& documents, int64_t tokens, int length, Device device) {
  ConvLists lists;
  lists.document_count = static_cast<int>(documents.count());
  lists.run_count = static_cast<int>(tokens / length) + lists.document_count;
  const int runs = lists.run_count;
  lists.documents =
      bring("documents", documents, lists.document_count, device, [=] { return list_documents(documents); });
  lists.runs = bring(fmt::format("runs of {}", length), documents, runs, device,
                     [=] { return list_runs(documents, length, static_cast<size_t>(runs)); });
  return lists;
}

}  // namespace temper::backends
