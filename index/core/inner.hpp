// Private declarations shared by the automaton's sources.
#pragma once

#include <stdexcept>

#include "automaton.hpp"

namespace draftline {

inline constexpr uint32_t kBranch = 1u << 31;  // tag bit of a state that is a branch
inline constexpr uint32_t kRoot = 0;           // a branch

inline bool is_branch(uint32_t state) { return state & kBranch; }

// A read-write lock that throws instead of waiting.
class Automaton::Reading {
 public:
  explicit Reading(const Automaton& of) : users_(of.users_) {
    int users = users_.load();
    do {
      if (users < 0)
        throw std::runtime_error(
            "the automaton is being modified by another thread; "
            "read it afterwards, or keep another one for readers");
    } while (!users_.compare_exchange_weak(users, users + 1));
  }
  ~Reading() { --users_; }
  Reading(const Reading&) = delete;

 private:
  std::atomic<int>& users_;
};

class Automaton::Writing {
 public:
  explicit Writing(Automaton& to) : users_(to.users_) {
    int nobody = 0;
    if (!users_.compare_exchange_strong(nobody, -1))
      throw std::runtime_error(
          "the automaton is in use by another thread; "
          "modify it while no other call runs");
  }
  ~Writing() { users_ = 0; }
  Writing(const Writing&) = delete;

 private:
  std::atomic<int>& users_;
};

}  // namespace draftline
