// What the automaton's sources share, and nobody else sees.
#pragma once

#include <stdexcept>
#include <string>

#include "automaton.hpp"

namespace draftline {

inline constexpr uint32_t kBranch = 1u << 31;  // marks a branch among states
inline constexpr uint32_t kRoot = 0;           // branch

inline bool is_branch(uint32_t state) { return state & kBranch; }

inline void require_ids(Automaton::Tokens tokens) {
    for (int32_t token : tokens)
        if (token < 0)
            throw std::invalid_argument("token id " + std::to_string(token) +
                                        ": ids must be 0 to 2147483647");
}

inline void require_not_negative(const char* name, int64_t value) {
    if (value < 0)
        throw std::invalid_argument(std::string(name) + " " + std::to_string(value) +
                                    ": must be 0 or more");
}

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
        if (to.frozen_) {
            users_ = 0;
            throw std::invalid_argument("the automaton is frozen: build a new one to add text");
        }
    }
    ~Writing() { users_ = 0; }
    Writing(const Writing&) = delete;

private:
    std::atomic<int>& users_;
};

}  // namespace draftline
