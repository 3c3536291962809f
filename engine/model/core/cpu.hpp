// The instruction sets the kernels are compiled for, and the one in use. Chosen at run time: the
// same binary runs on every processor of its architecture. Every path gives the same bits.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#define DRAFTLINE_X86 1
#define TARGET_AVX2 __attribute__((target("avx2,fma")))
#define TARGET_AVX512 \
  __attribute__((target("avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#else
#define DRAFTLINE_X86 0
#endif

#define INLINE inline __attribute__((always_inline))

namespace draftline {

enum class Isa { plain, avx2, avx512vnni };

Isa isa();                       // the one in use; at start the best this processor has
void set_isa(const char* name);  // "plain", "avx2" or "avx512vnni"; throws std::invalid_argument
const char* isa_name();

}  // namespace draftline
