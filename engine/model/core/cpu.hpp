// The instruction sets the kernels are compiled for, and the one in use. Chosen at run time: the
// same binary runs on every processor of its architecture. Every path gives the same bits.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#define DRAFTLINE_X86 1
#define DRAFTLINE_ARM 0
#define TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define TARGET_AVXVNNI __attribute__((target("avx2,fma,f16c,avxvnni")))
#define TARGET_AVX512 \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#elif defined(__aarch64__)
#define DRAFTLINE_X86 0
#define DRAFTLINE_ARM 1
#if defined(__clang__)
#define TARGET_DOTPROD __attribute__((target("dotprod")))
#define TARGET_I8MM __attribute__((target("dotprod,i8mm")))
#else
#define TARGET_DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#define TARGET_I8MM __attribute__((target("arch=armv8.2-a+dotprod+i8mm")))
#endif
#else
#define DRAFTLINE_X86 0
#define DRAFTLINE_ARM 0
#endif

#define INLINE inline __attribute__((always_inline))

namespace draftline {

// In order of preference, the best last. Attention and norms know plain, avx2 (avxvnni is the same
// to them) and avx512vnni.
enum class Isa { plain, avx2, avxvnni, avx512vnni, dotprod, i8mm };

Isa isa();                       // the one in use; at start the best this processor has
void set_isa(const char* name);  // by its name above; throws std::invalid_argument
const char* isa_name();

}  // namespace draftline
