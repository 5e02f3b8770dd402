#pragma once
#include "backends/hopper/wgmma.h"

// Products of [64, n] sums whose n is chosen at run time, by a switch: 8 to 128 columns, in steps of 8. `a`
// has 64 rows of the sum's result, `b` n of them, 128 bytes each (wgmma.h).
namespace temper::backends::hopper {

#define TEMPER_NAMES_8 "%0, %1, %2, %3"
#define TEMPER_SUMS_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define TEMPER_NAMES_16 TEMPER_NAMES_8 ", %4, %5, %6, %7"
#define TEMPER_SUMS_16 TEMPER_SUMS_8, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define TEMPER_NAMES_24 TEMPER_NAMES_16 ", %8, %9, %10, %11"
#define TEMPER_SUMS_24 TEMPER_SUMS_16, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define TEMPER_NAMES_32 TEMPER_NAMES_24 ", %12, %13, %14, %15"
#define TEMPER_SUMS_32 TEMPER_SUMS_24, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define TEMPER_NAMES_40 TEMPER_NAMES_32 ", %16, %17, %18, %19"
#define TEMPER_SUMS_40 TEMPER_SUMS_32, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define TEMPER_NAMES_48 TEMPER_NAMES_40 ", %20, %21, %22, %23"
#define TEMPER_SUMS_48 TEMPER_SUMS_40, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define TEMPER_NAMES_56 TEMPER_NAMES_48 ", %24, %25, %26, %27"
#define TEMPER_SUMS_56 TEMPER_SUMS_48, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define TEMPER_NAMES_64 TEMPER_NAMES_56 ", %28, %29, %30, %31"
#define TEMPER_SUMS_64 TEMPER_SUMS_56, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define TEMPER_NAMES_72 TEMPER_NAMES_64 ", %32, %33, %34, %35"
#define TEMPER_SUMS_72 TEMPER_SUMS_64, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define TEMPER_NAMES_80 TEMPER_NAMES_72 ", %36, %37, %38, %39"
#define TEMPER_SUMS_80 TEMPER_SUMS_72, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define TEMPER_NAMES_88 TEMPER_NAMES_80 ", %40, %41, %42, %43"
#define TEMPER_SUMS_88 TEMPER_SUMS_80, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define TEMPER_NAMES_96 TEMPER_NAMES_88 ", %44, %45, %46, %47"
#define TEMPER_SUMS_96 TEMPER_SUMS_88, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define TEMPER_NAMES_104 TEMPER_NAMES_96 ", %48, %49, %50, %51"
#define TEMPER_SUMS_104 TEMPER_SUMS_96, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define TEMPER_NAMES_112 TEMPER_NAMES_104 ", %52, %53, %54, %55"
#define TEMPER_SUMS_112 TEMPER_SUMS_104, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define TEMPER_NAMES_120 TEMPER_NAMES_112 ", %56, %57, %58, %59"
#define TEMPER_SUMS_120 TEMPER_SUMS_112, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define TEMPER_NAMES_128 TEMPER_NAMES_120 ", %60, %61, %62, %63"
#define TEMPER_SUMS_128 TEMPER_SUMS_120, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])

// One size; the numbers are those of the operands after its n / 2 sums.
#define TEMPER_PRODUCT(n, A, B, ADD, TRANSPOSE)                                              \
  if constexpr (kColumns == n)                                                               \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %" #ADD                                 \
               ", 0;\n"                                                                      \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" TEMPER_NAMES_##n \
               "}, %" #A ", %" #B ", add, 1, 1, %" #TRANSPOSE ", 0;\n}\n"                    \
               : TEMPER_SUMS_##n                                                             \
               : "l"(a), "l"(b), "r"(add), "n"(kTransA))

// d (+)= a bᵀ for one step of 16 along the sum.
template <int kTransA, int kColumns>
__device__ inline void product_of_columns(float (&d)[64], uint64_t a, uint64_t b, int add) {
  TEMPER_PRODUCT(8, 4, 5, 6, 7);
  TEMPER_PRODUCT(16, 8, 9, 10, 11);
  TEMPER_PRODUCT(24, 12, 13, 14, 15);
  TEMPER_PRODUCT(32, 16, 17, 18, 19);
  TEMPER_PRODUCT(40, 20, 21, 22, 23);
  TEMPER_PRODUCT(48, 24, 25, 26, 27);
  TEMPER_PRODUCT(56, 28, 29, 30, 31);
  TEMPER_PRODUCT(64, 32, 33, 34, 35);
  TEMPER_PRODUCT(72, 36, 37, 38, 39);
  TEMPER_PRODUCT(80, 40, 41, 42, 43);
  TEMPER_PRODUCT(88, 44, 45, 46, 47);
  TEMPER_PRODUCT(96, 48, 49, 50, 51);
  TEMPER_PRODUCT(104, 52, 53, 54, 55);
  TEMPER_PRODUCT(112, 56, 57, 58, 59);
  TEMPER_PRODUCT(120, 60, 61, 62, 63);
  TEMPER_PRODUCT(128, 64, 65, 66, 67);
}

// Calls f.template operator()<n>().
template <class F>
__device__ inline void visit_columns(int n, F&& f) {
  switch (n) {
    case 8:
      return f.template operator()<8>();
    case 16:
      return f.template operator()<16>();
    case 24:
      return f.template operator()<24>();
    case 32:
      return f.template operator()<32>();
    case 40:
      return f.template operator()<40>();
    case 48:
      return f.template operator()<48>();
    case 56:
      return f.template operator()<56>();
    case 64:
      return f.template operator()<64>();
    case 72:
      return f.template operator()<72>();
    case 80:
      return f.template operator()<80>();
    case 88:
      return f.template operator()<88>();
    case 96:
      return f.template operator()<96>();
    case 104:
      return f.template operator()<104>();
    case 112:
      return f.template operator()<112>();
    case 120:
      return f.template operator()<120>();
    default:
      return f.template operator()<128>();
  }
}

#undef TEMPER_PRODUCT
#undef TEMPER_NAMES_8
#undef TEMPER_SUMS_8
#undef TEMPER_NAMES_16
#undef TEMPER_SUMS_16
#undef TEMPER_NAMES_24
#undef TEMPER_SUMS_24
#undef TEMPER_NAMES_32
#undef TEMPER_SUMS_32
#undef TEMPER_NAMES_40
#undef TEMPER_SUMS_40
#undef TEMPER_NAMES_48
#undef TEMPER_SUMS_48
#undef TEMPER_NAMES_56
#undef TEMPER_SUMS_56
#undef TEMPER_NAMES_64
#undef TEMPER_SUMS_64
#undef TEMPER_NAMES_72
#undef TEMPER_SUMS_72
#undef TEMPER_NAMES_80
#undef TEMPER_SUMS_80
#undef TEMPER_NAMES_88
#undef TEMPER_SUMS_88
#undef TEMPER_NAMES_96
#undef TEMPER_SUMS_96
#undef TEMPER_NAMES_104
#undef TEMPER_SUMS_104
#undef TEMPER_NAMES_112
#undef TEMPER_SUMS_112
#undef TEMPER_NAMES_120
#undef TEMPER_SUMS_120
#undef TEMPER_NAMES_128
#undef TEMPER_SUMS_128

}  // namespace temper::backends::hopper
