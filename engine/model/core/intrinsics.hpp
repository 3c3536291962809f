// Intrinsics of the processor. With Visual Studio's headers Clang leaves out those of instruction
// sets that are not enabled for a whole file, so they are named.
#pragma once

#include "cpu.hpp"

#if DRAFTLINE_X86
#include <immintrin.h>
#if defined(_MSC_VER) && defined(__clang__)
// clang-format off: each needs those before it
#include <avxintrin.h>
#include <avx2intrin.h>
#include <f16cintrin.h>
#include <fmaintrin.h>
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512vldqintrin.h>
#include <avx512vnniintrin.h>
#include <avx512vlvnniintrin.h>
#include <avxvnniintrin.h>
// clang-format on
#endif
#elif DRAFTLINE_ARM
#include <arm_neon.h>
#endif
