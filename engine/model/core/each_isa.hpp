// Compiles the file KERNEL once for every instruction set: in draftline::plain, ::avx2 and
// ::avx512, after lanes.hpp, with LANES floats to a vector. Every function there is marked HOT.
// (Target attributes on the wrappers alone are not enough: GCC takes wide vectors apart before it
// inlines.)
#include "cpu.hpp"
#if DRAFTLINE_X86
#include <immintrin.h>
#endif

#define HOT inline __attribute__((always_inline)) TARGET

namespace draftline::plain {
#define TARGET
#define LANES 4
#include "lanes.hpp"
#include KERNEL
#undef LANES
#undef TARGET
}  // namespace draftline::plain

#if DRAFTLINE_X86
namespace draftline::avx2 {
#define TARGET TARGET_AVX2
#define LANES 8
#include "lanes.hpp"
#include KERNEL
#undef LANES
#undef TARGET
}  // namespace draftline::avx2

namespace draftline::avx512 {
#define TARGET TARGET_AVX512
#define LANES 16
#include "lanes.hpp"
#include KERNEL
#undef LANES
#undef TARGET
}  // namespace draftline::avx512
#endif
