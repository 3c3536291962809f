// A pool of threads for all kernels, and one for threads that have lowered their priority, whose
// workers' is as low: Linux lets nobody raise it again, so no thread ever changes back. Workers
// spin for a moment after a job (the next of a forward follows within microseconds), then sleep.
// The caller works too and never waits for a worker that has not begun, so a busy machine or a
// forked child (which has no workers) only loses speed. One job at a time in a pool: a second
// caller waits. A fork while another thread is inside a kernel is not supported.
#pragma once
#include <functional>

namespace draftline {

int threads();
void set_threads(int count);  // the caller counts as one; throws std::invalid_argument below 1

// Lowers the calling thread's priority for good, where the system lets it, and that of its jobs.
void lower_priority();

// Calls task(0) ... task(tasks - 1), each once, in any order, on any thread. Tasks must not throw.
void parallel(int tasks, const std::function<void(int)>& task);

}  // namespace draftline
