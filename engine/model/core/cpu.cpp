#include "cpu.hpp"

#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>

#if DRAFTLINE_X86 && defined(_WIN32)
#include <immintrin.h>
#include <intrin.h>
#elif DRAFTLINE_ARM && defined(__linux__)
#include <sys/auxv.h>
#elif DRAFTLINE_ARM && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace draftline {
namespace {

constexpr Isa kAll[] = {Isa::plain,      Isa::avx2,    Isa::avxvnni,
                        Isa::avx512vnni, Isa::dotprod, Isa::i8mm};
constexpr const char* kNames[] = {"plain", "avx2", "avxvnni", "avx512vnni", "dotprod", "i8mm"};

#if DRAFTLINE_X86 && defined(_WIN32)
// __builtin_cpu_supports needs a library of Clang's there. Bits of CPUID, and of what the system
// saves of the registers (XCR0): 2 and 1 for AVX, 7 to 5 for AVX-512.
struct Features {
  int leaf1[4] = {}, leaf7[4] = {}, leaf7_1[4] = {};
  uint64_t saved = 0;

  Features() {
    int most[4];
    __cpuid(most, 0);
    if (most[0] < 7) return;
    __cpuidex(leaf1, 1, 0);
    if (bit(leaf1[2], 27)) saved = _xgetbv(0);
    __cpuidex(leaf7, 7, 0);
    if (leaf7[0] >= 1) __cpuidex(leaf7_1, 7, 1);
  }
  static bool bit(int word, int n) { return unsigned(word) >> n & 1; }
};

bool has(Isa wanted) {
  if (wanted == Isa::plain) return true;
  static const Features found;
  const auto bit = Features::bit;
  const bool fma = bit(found.leaf1[2], 12), f16c = bit(found.leaf1[2], 29);
  if ((found.saved & 0x6) != 0x6 || !bit(found.leaf7[1], 5) || !fma || !f16c) return false;
  if (wanted == Isa::avx2) return true;
  if (wanted == Isa::avxvnni) return bit(found.leaf7_1[0], 4);
  const bool f = bit(found.leaf7[1], 16), dq = bit(found.leaf7[1], 17),
             bw = bit(found.leaf7[1], 30), vl = bit(found.leaf7[1], 31);
  return wanted == Isa::avx512vnni && (found.saved & 0xe6) == 0xe6 && f && dq && bw && vl &&
         bit(found.leaf7[2], 11);
}
#elif DRAFTLINE_X86
bool has(Isa wanted) {
  if (wanted == Isa::plain) return true;
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return false;
  if (wanted == Isa::avx2) return true;
  if (wanted == Isa::avxvnni) return __builtin_cpu_supports("avxvnni");
  return wanted == Isa::avx512vnni && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#elif DRAFTLINE_ARM && defined(__linux__)
bool has(Isa wanted) {
  constexpr unsigned long kDotprod = 1ul << 20, kI8mm = 1ul << 13;  // HWCAP_ASIMDDP, HWCAP2_I8MM
  const bool dotprod = getauxval(AT_HWCAP) & kDotprod;
  if (wanted == Isa::dotprod) return dotprod;
  if (wanted == Isa::i8mm) return dotprod && (getauxval(AT_HWCAP2) & kI8mm);
  return wanted == Isa::plain;
}
#elif DRAFTLINE_ARM && defined(__APPLE__)
bool feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value;
}

bool has(Isa wanted) {
  const bool dotprod = feature("hw.optional.arm.FEAT_DotProd");
  if (wanted == Isa::dotprod) return dotprod;
  if (wanted == Isa::i8mm) return dotprod && feature("hw.optional.arm.FEAT_I8MM");
  return wanted == Isa::plain;
}
#else
bool has(Isa wanted) { return wanted == Isa::plain; }
#endif

Isa best() {
  Isa found = Isa::plain;
  for (Isa one : kAll)
    if (has(one)) found = one;
  return found;
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> value = best();
  return value;
}

}  // namespace

Isa isa() { return current().load(std::memory_order_relaxed); }

const char* isa_name() { return kNames[int(isa())]; }

void set_isa(const char* name) {
  for (Isa choice : kAll) {
    if (std::string(name) != kNames[int(choice)]) continue;
    if (!has(choice))
      throw std::invalid_argument("isa " + std::string(name) + ": this processor does not have it");
    current().store(choice);
    return;
  }
  throw std::invalid_argument("isa " + std::string(name) +
                              ": must be plain, avx2, avxvnni, avx512vnni, dotprod or i8mm");
}

}  // namespace draftline
