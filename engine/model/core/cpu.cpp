#include "cpu.hpp"

#include <atomic>
#include <stdexcept>
#include <string>

namespace draftline {
namespace {

constexpr const char* kNames[] = {"plain", "avx2", "avx512vnni"};

bool has(Isa wanted) {
  if (wanted == Isa::plain) return true;
#if DRAFTLINE_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (wanted == Isa::avx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> value = has(Isa::avx512vnni) ? Isa::avx512vnni
                                  : has(Isa::avx2)     ? Isa::avx2
                                                       : Isa::plain;
  return value;
}

}  // namespace

Isa isa() { return current().load(std::memory_order_relaxed); }

const char* isa_name() { return kNames[int(isa())]; }

void set_isa(const char* name) {
  for (Isa choice : {Isa::plain, Isa::avx2, Isa::avx512vnni}) {
    if (std::string(name) != kNames[int(choice)]) continue;
    if (!has(choice))
      throw std::invalid_argument("isa " + std::string(name) + ": this processor does not have it");
    current().store(choice);
    return;
  }
  throw std::invalid_argument("isa " + std::string(name) + ": must be plain, avx2 or avx512vnni");
}

}  // namespace draftline
