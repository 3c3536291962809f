// Compiles the file KERNEL once for every instruction set: in draftline::plain, ::avx2 and
// ::avx512, after lanes.hpp, with LANES floats to a vector; with EACH_DOT also in ::avxvnni, or on
// ARM ::dotprod and ::i8mm, whose floats are those of ::avx2 and ::plain. DOT is the instruction
// for products of bytes. Every function there is marked HOT. (Target attributes on the wrappers
// alone are not enough: GCC takes wide vectors apart before it inlines.)
#include <cstring>

#include "intrinsics.hpp"

#define HOT inline __attribute__((always_inline)) TARGET
#define DOT_NONE 0
#define DOT_MADD 1    // unsigned times signed, 16-bit sums of two
#define DOT_256 2     // unsigned times signed
#define DOT_512 3     // unsigned times signed
#define DOT_SIGNED 4  // signed times signed
#define DOT_USDOT 5   // unsigned times signed

namespace draftline::plain {
#define TARGET
#define LANES 4
#define DOT DOT_NONE
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::plain

#if DRAFTLINE_X86
namespace draftline::avx2 {
#define TARGET TARGET_AVX2
#define LANES 8
#define DOT DOT_MADD
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::avx2

namespace draftline::avx512 {
#define TARGET TARGET_AVX512
#define LANES 16
#define DOT DOT_512
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::avx512
#endif

#ifdef EACH_DOT
#if DRAFTLINE_X86
namespace draftline::avxvnni {
#define TARGET TARGET_AVXVNNI
#define LANES 8
#define DOT DOT_256
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::avxvnni
#elif DRAFTLINE_ARM
namespace draftline::dotprod {
#define TARGET TARGET_DOTPROD
#define LANES 4
#define DOT DOT_SIGNED
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::dotprod

namespace draftline::i8mm {
#define TARGET TARGET_I8MM
#define LANES 4
#define DOT DOT_USDOT
#include "lanes.hpp"
#include KERNEL
#undef DOT
#undef LANES
#undef TARGET
}  // namespace draftline::i8mm
#endif
#endif
