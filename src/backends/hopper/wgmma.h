#pragma once
#include <cstdint>

// Hopper's matrix products by a warpgroup of four warps (PTX ISA 8.0, "wgmma"): bfloat16 operands, float32
// sums.
//
// Operands in shared memory are boxes of rows of 128 bytes whose 16-byte chunks are swizzled: chunk c of row
// r lies at c ^ (r % 8). Eight rows are a group of 1024 bytes, and a box begins at a multiple of that. Sums
// of [64, n] lie in registers: thread t holds, for every 8 columns i, elements (row, 8 i + c), (row, 8 i + c
// + 1), (row + 8, 8 i + c) and (row + 8, 8 i + c + 1) with row = 16 (t / 32) + t % 32 / 4 and c = 2 (t % 4).
namespace temper::backends::hopper {

inline constexpr uint32_t kGroupBytes = 1024;  // eight rows of a box

// Where a box has a chunk of a row.
__device__ inline uint32_t chunk_of(uint32_t box, int row, int chunk) {
  return box + row * 128 + (chunk ^ row % 8) * 16;
}

// What names an operand to the instruction: where it begins, and, for an operand whose rows are the sum's
// dimension
// ("transposed"), how far the next 64 of the other dimension are.
struct Operand {
  uint32_t low, high;
  __device__ explicit Operand(uint32_t address, uint32_t next_box = 0)
      : low(next_box >> 4 << 16 | (address & 0x3ffff) >> 4), high(kGroupBytes >> 4 | kSwizzle128) {}
  // The same, `bytes` further on.
  __device__ uint64_t at(uint32_t bytes) const { return uint64_t{high} << 32 | (low + (bytes >> 4)); }
  static constexpr uint32_t kSwizzle128 = 1u << 30;
};

// Before the first product after sums or operands in registers were written.
__device__ inline void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kLeft committed groups are in flight.
template <int kLeft>
__device__ inline void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}
// The compiler may move no use of these sums across this place.
template <int kCount>
__device__ inline void hold(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// The registers of [64, 64], [64, 128] and [64, 256] sums, as the instruction names them and as operands.
#define TEMPER_NAMES_64                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TEMPER_NAMES_128                                                             \
  TEMPER_NAMES_64                                                                    \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TEMPER_NAMES_256                                                                                   \
  TEMPER_NAMES_128                                                                                         \
  ", "                                                                                                     \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, "   \
  "%84, "                                                                                                  \
  "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, "    \
  "%104, "                                                                                                 \
  "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, " \
  "%122, %123, %124, %125, %126, %127"
#define TEMPER_SUMS_64                                                                                      \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),           \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
      "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),            \
      "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),            \
      "+f"(d[30]), "+f"(d[31])
#define TEMPER_SUMS_128                                                                                      \
  TEMPER_SUMS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), \
      "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),             \
      "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]),             \
      "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),             \
      "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define TEMPER_SUMS_256                                                                                 \
  TEMPER_SUMS_128, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),        \
      "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]),        \
      "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]),        \
      "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]), "+f"(d[88]), "+f"(d[89]), "+f"(d[90]),        \
      "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95]), "+f"(d[96]), "+f"(d[97]),        \
      "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103]), "+f"(d[104]),   \
      "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), \
      "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), \
      "+f"(d[119]), "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), \
      "+f"(d[126]), "+f"(d[127])

// d (+)= a b for one step of 16 along the sum. `a` in shared memory or, as four registers, in the layout of
// the sums.
template <int kTransA, int kTransB>
__device__ inline void product_n64(float (&d)[32], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TEMPER_NAMES_64
      "}, %32, %33, add, 1, 1, %35, %36;\n}\n"
      : TEMPER_SUMS_64
      : "l"(a), "l"(b), "r"(add), "n"(kTransA), "n"(kTransB));
}

template <int kTransA, int kTransB>
__device__ inline void product_n128(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TEMPER_NAMES_128
      "}, %64, %65, add, 1, 1, %67, %68;\n}\n"
      : TEMPER_SUMS_128
      : "l"(a), "l"(b), "r"(add), "n"(kTransA), "n"(kTransB));
}

template <int kTransA, int kTransB>
__device__ inline void product_n256(float (&d)[128], uint64_t a, uint64_t b, int add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" TEMPER_NAMES_256
      "}, %128, %129, add, 1, 1, %131, %132;\n}\n"
      : TEMPER_SUMS_256
      : "l"(a), "l"(b), "r"(add), "n"(kTransA), "n"(kTransB));
}

template <int kTransB>
__device__ inline void product_n64(float (&d)[32], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TEMPER_NAMES_64
               "}, {%32, %33, %34, %35}, %36, 1, 1, 1, %37;\n"
               : TEMPER_SUMS_64
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransB));
}

template <int kTransB>
__device__ inline void product_n128(float (&d)[64], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TEMPER_NAMES_128
               "}, {%64, %65, %66, %67}, %68, 1, 1, 1, %69;\n"
               : TEMPER_SUMS_128
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransB));
}

#undef TEMPER_NAMES_64
#undef TEMPER_NAMES_128
#undef TEMPER_NAMES_256
#undef TEMPER_SUMS_64
#undef TEMPER_SUMS_128
#undef TEMPER_SUMS_256

template <int kTransA, int kTransB, int kCount>
__device__ inline void product(float (&d)[kCount], uint64_t a, uint64_t b, bool add) {
  if constexpr (kCount == 32)
    product_n64<kTransA, kTransB>(d, a, b, add);
  else if constexpr (kCount == 64)
    product_n128<kTransA, kTransB>(d, a, b, add);
  else
    product_n256<kTransA, kTransB>(d, a, b, add);
}
template <int kTransB, int kCount>
__device__ inline void add_product(float (&d)[kCount], const uint32_t* a, uint64_t b) {
  if constexpr (kCount == 32)
    product_n64<kTransB>(d, a, b);
  else
    product_n128<kTransB>(d, a, b);
}

// Four 8 x 8 tiles of bfloat16, two to a register in the layout of the sums; each thread names 16 bytes of a
// row.
__device__ inline void store_tiles(uint32_t address, const uint32_t* tiles) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
}

// The same, each transposed: a thread names 16 bytes of a column.
__device__ inline void store_tiles_transposed(uint32_t address, const uint32_t* tiles) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
}

// The same four to registers, as they are or each transposed: the operands of small products.
__device__ inline void load_tiles(uint32_t address, uint32_t* tiles) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_tiles_transposed(uint32_t address, uint32_t* tiles) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tiles[0]), "=r"(tiles[1]), "=r"(tiles[2]), "=r"(tiles[3])
               : "r"(address)
               : "memory");
}
// sums [16, 8] += a [16, 16] b [16, 8], by one warp.
__device__ inline void add_small_product(float (&sums)[4], const uint32_t (&a)[4], const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ inline void store_shared(uint32_t address, const uint4& value) {  // 16 bytes
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}

__device__ inline uint32_t pack(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}

__device__ inline float2 unpack(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

}  // namespace temper::backends::hopper
