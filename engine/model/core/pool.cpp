#include "pool.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "intrinsics.hpp"

#if defined(__linux__)
#include <sys/resource.h>
#elif defined(__APPLE__)
#include <pthread/qos.h>
#elif defined(_WIN32)
#include <windows.h>
#endif

namespace draftline {
namespace {

constexpr int kNiceness = 5;  // beside another busy thread, a quarter of a core
constexpr auto kSpin = std::chrono::microseconds(100);  // longer than the gaps within a forward

thread_local bool is_low = false;

// A thread that cannot, or whose priority is lower already, keeps it.
void lower() {
#if defined(__linux__)
  if (getpriority(PRIO_PROCESS, 0) < kNiceness)  // of this thread alone
    setpriority(PRIO_PROCESS, 0, kNiceness);
#elif defined(__APPLE__)
  pthread_set_qos_class_self_np(QOS_CLASS_UTILITY, 0);
#elif defined(_WIN32)
  SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
#endif
}

inline void relax() {
#if DRAFTLINE_X86
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

struct Pool {
  const bool low;              // its workers' priority
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

  void start() {
    for (; started < wanted.load(); ++started) {
      const int index = started;
      const unsigned seen = generation.load();
      std::thread([this, index, seen] {
        if (low) lower();
        work(index, seen);
      }).detach();
    }
  }

  void run(int count, const std::function<void(int)>& body) {
    std::lock_guard lock(mutex);
    start();
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

// Never destroyed: their detached workers outlive every static object.
Pool& pool(bool low) {
  static Pool* const pools[] = {new Pool{false}, new Pool{true}};
  return *pools[low];
}

}  // namespace

int threads() { return pool(false).wanted.load(); }

void set_threads(int count) {
  if (count < 1)
    throw std::invalid_argument("threads " + std::to_string(count) + ": must be 1 or more");
  for (const bool low : {false, true}) {
    Pool& p = pool(low);
    std::lock_guard lock(p.mutex);
    p.wanted.store(count);
  }
}

void lower_priority() {
  if (!is_low) lower();
  is_low = true;
}

void parallel(int tasks, const std::function<void(int)>& task) {
  if (tasks > 1 && threads() > 1) return pool(is_low).run(tasks, task);
  for (int i = 0; i < tasks; ++i) task(i);
}

}  // namespace draftline
