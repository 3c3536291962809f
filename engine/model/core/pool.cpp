#include "pool.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "intrinsics.hpp"

namespace draftline {
namespace {

constexpr auto kSpin = std::chrono::microseconds(100);  // longer than the gaps within a forward

inline void relax() {
#if DRAFTLINE_X86
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Pool {
  std::mutex mutex;            // held by the caller for the whole job
  std::atomic<int> wanted{1};  // threads, the caller included
  int started = 1;
  std::atomic<unsigned> generation{0};  // moves when a job opens or workers must look up
  std::atomic<int> inside{0};           // workers that may be touching the job
  std::atomic<bool> open{false};
  std::atomic<int> next{0};
  int tasks = 0;
  const std::function<void(int)>* task = nullptr;

  void drain() {
    for (int i = next.fetch_add(1); i < tasks; i = next.fetch_add(1)) (*task)(i);
  }

  void wait(unsigned seen) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (generation.load() != seen) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < until);
    generation.wait(seen);
  }

  void work(int index, unsigned seen) {
    for (;;) {
      wait(seen);
      seen = generation.load();
      // Order matters: `inside` goes up before `open` is read, and the caller closes the job before
      // it reads `inside`; so either we see it closed or the caller waits for us.
      inside.fetch_add(1);
      if (open.load() && index < wanted.load()) drain();
      inside.fetch_sub(1);
    }
  }

  void run(int count, const std::function<void(int)>& body) {
    std::lock_guard lock(mutex);
    tasks = count;
    task = &body;
    next.store(0);
    open.store(true);
    generation.fetch_add(1);
    generation.notify_all();
    drain();
    open.store(false);
    while (inside.load() != 0) relax();
  }
};

// Never destroyed: its detached workers outlive every static object.
Pool& pool() {
  static Pool* const instance = new Pool;
  return *instance;
}

}  // namespace

int threads() { return pool().wanted.load(); }

void set_threads(int count) {
  if (count < 1)
    throw std::invalid_argument("threads " + std::to_string(count) + ": must be 1 or more");
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  p.wanted.store(count);
  for (; p.started < count; ++p.started) {
    const int index = p.started;
    const unsigned seen = p.generation.load();
    std::thread([&p, index, seen] { p.work(index, seen); }).detach();
  }
}

void parallel(int tasks, const std::function<void(int)>& task) {
  if (tasks > 1 && threads() > 1) return pool().run(tasks, task);
  for (int i = 0; i < tasks; ++i) task(i);
}

}  // namespace draftline
