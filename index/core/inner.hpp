// What the automaton's sources share, and nobody else sees.
#pragma once

#include <stdexcept>

#include "automaton.hpp"

namespace draftline {

inline constexpr uint32_t kBranch = 1u << 31;  // marks a branch among states
inline constexpr uint32_t kRoot = 0;           // branch

inline bool is_branch(uint32_t state) { return state & kBranch; }

// Readers meet no writer, and a writer meets nobody: who does is refused.
class Automaton::Reading {
public:
    explicit Reading(const Automaton& of) : users_(of.users_) {
        int users = users_.load();
        do {
            if (users < 0)
                throw std::runtime_error("the automaton is being written by another thread: "
                                         "read it afterwards, or keep one for readers");
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
            throw std::runtime_error("the automaton is in use by another thread: "
                                     "write it when no other call runs");
    }
    ~Writing() { users_ = 0; }
    Writing(const Writing&) = delete;

private:
    std::atomic<int>& users_;
};

}  // namespace draftline
