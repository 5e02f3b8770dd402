#include "backends/onednn/matmul.h"

#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <tuple>

#include "base/threads/per_thread.h"
#include "base/threads/threads.h"

namespace temper::backends {
namespace {

dnnl::engine& engine() {
  static dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::memory::desc describe(const Matrix& matrix, int64_t rows, int64_t columns) {
  const auto type =
      matrix.dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
  const dnnl::memory::dims strides =
      matrix.transposed ? dnnl::memory::dims{1, matrix.stride} : dnnl::memory::dims{matrix.stride, 1};
  return {{rows, columns}, type, strides};
}

dnnl::matmul::primitive_desc choose(const Tile& tile) {
  dnnl::primitive_attr attributes;
  // The library's own scratchpad is shared between primitives made on one thread.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (tile.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
  return {{describe(tile.a, tile.m, tile.k), describe(tile.b, tile.k, tile.n),
           describe({tile.c, DType::kF32, tile.stride, false}, tile.m, tile.n)},
          attributes,
          engine()};
}

struct Compiled {
  dnnl::memory::desc a, b, c, scratchpad;
  dnnl::matmul run;

  explicit Compiled(const dnnl::matmul::primitive_desc& chosen)
      : a(chosen.src_desc()),
        b(chosen.weights_desc()),
        c(chosen.dst_desc()),
        scratchpad(chosen.scratchpad_desc()),
        run(chosen) {}
};

// Bounded: training meets few shapes; a server with many simply compiles some of them again.
Compiled compiled_for(const Tile& tile) {
  using Key = std::tuple<DType, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, bool>;
  constexpr size_t kMaxKept = 1024;
  static std::mutex mutex;
  static std::map<Key, Compiled> kept;
  const Key key{tile.a.dtype,      tile.m,         tile.n,      tile.k,
                tile.a.stride,     tile.b.stride,  tile.stride, tile.a.transposed,
                tile.b.transposed, tile.accumulate};
  const std::lock_guard lock(mutex);
  const auto found = kept.find(key);
  if (found != kept.end()) return found->second;
  if (kept.size() >= kMaxKept) kept.clear();
  return kept.emplace(key, Compiled(choose(tile))).first->second;
}

}  // namespace

void gemm(const Tile& tile) {
  const ThreadLimit one(1);  // oneDNN cuts its work by the number that it sees
  const auto status = dnnl_sgemm(tile.a.transposed ? 'T' : 'N', tile.b.transposed ? 'T' : 'N', tile.m, tile.n,
                                 tile.k, 1.0f, static_cast<const float*>(tile.a.data), tile.a.stride,
                                 static_cast<const float*>(tile.b.data), tile.b.stride,
                                 tile.accumulate ? 1.0f : 0.0f, tile.c, tile.stride);
  invariant(status == dnnl_success,
            fmt::format("oneDNN sgemm failed with status {}", static_cast<int>(status)));
}

int64_t matmul_workspace(const Tile& tile) {
  const ThreadLimit one(1);
  return static_cast<int64_t>(choose(tile).scratchpad_desc().get_size());
}

void matmul(const Tile& tile) {
  const ThreadLimit one(1);  // when it compiles, too
  const Compiled compiled = compiled_for(tile);
  struct Stream : dnnl::stream {
    Stream() : dnnl::stream(engine()) {}
  };
  static const PerThread<Stream> streams;
  dnnl::stream& stream = streams.get();
  const int64_t scratch_bytes = static_cast<int64_t>(compiled.scratchpad.get_size());
  const Tensor scratch = Tensor::empty({scratch_bytes}, DType::kU8, MemoryTag::kWorkspace);
  const auto memory = [](const dnnl::memory::desc& description, const void* data) {
    return dnnl::memory(description, engine(), const_cast<void*>(data));
  };
  compiled.run.execute(stream, {{DNNL_ARG_SRC, memory(compiled.a, tile.a.data)},
                                {DNNL_ARG_WEIGHTS, memory(compiled.b, tile.b.data)},
                                {DNNL_ARG_DST, memory(compiled.c, tile.c)},
                                {DNNL_ARG_SCRATCHPAD, memory(compiled.scratchpad, scratch.raw())}});
  stream.wait();
}

}  // namespace temper::backends
