// index._core: the automaton for Python. Declarations only; _core.pyi says what each does.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "automaton.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using draftline::Automaton;
using draftline::Match;
using draftline::Tree;

namespace {

using Array = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using List = std::vector<int32_t>;

Automaton::Tokens span(const Array& tokens) { return {tokens.data(), tokens.size()}; }
Automaton::Tokens span(const List& tokens) { return {tokens.data(), tokens.size()}; }

// Short calls keep the GIL: taking it back can cost far more than they do.
constexpr size_t kLongInput = 1024;    // tokens
constexpr size_t kLongScan = 1 << 18;  // tokens in a growing automaton

class Unlocked {
public:
    explicit Unlocked(bool unlock) {
        if (unlock) release_.emplace();
    }

private:
    std::optional<nb::gil_scoped_release> release_;
};

bool long_scan(const Automaton& a) { return !a.frozen() && a.size() > kLongScan; }

template <class T>
auto array(std::span<const T> items) {
    auto copy = std::make_unique<T[]>(items.size());
    std::copy(items.begin(), items.end(), copy.get());
    T* const data = copy.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {items.size()}, owner);
}

template <class T>
auto array(const std::vector<T>& items) {
    return array(std::span<const T>(items));
}

// Every method that takes tokens takes an int32 array or any sequence of ints.
template <class Tokens, class Arg>
void take_tokens(nb::class_<Automaton>& automaton, Arg tokens, Arg tail) {
    automaton
        .def("add",
             [](Automaton& a, const Tokens& t) {
                 Unlocked unlocked(span(t).size() >= kLongInput);
                 return a.add(span(t));
             }, tokens)
        .def("extend",
             [](Automaton& a, const Tokens& t) {
                 Unlocked unlocked(span(t).size() >= kLongInput);
                 a.extend(span(t));
             }, tokens)
        .def("match",
             [](const Automaton& a, const Tokens& t, int64_t k, int64_t limit, bool followed) {
                 Unlocked unlocked(long_scan(a));
                 return a.match(span(t), k, limit, followed);
             }, tail, "k"_a = 8, "limit"_a = 64, nb::kw_only(), "followed"_a = false)
        .def("tree",
             [](const Automaton& a, const Tokens& t, int64_t nodes, int64_t width, int64_t limit,
                int64_t most) {
                 Unlocked unlocked(long_scan(a));
                 return a.tree(span(t), nodes, width, limit, most);
             }, tail, "nodes"_a = 64, "width"_a = 8, "limit"_a = 64, nb::kw_only(),
             "most"_a = 1024);
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a user who leaves by Ctrl-C is not told about objects
    nb::class_<Match>(m, "Match")
        .def_ro("length", &Match::length)
        .def_ro("count", &Match::count)
        .def_prop_ro("docs", [](const Match& match) { return array(match.docs); },
                     nb::rv_policy::automatic)
        .def_prop_ro("ends", [](const Match& match) { return array(match.ends); },
                     nb::rv_policy::automatic);

    nb::class_<Tree>(m, "Tree")
        .def("__len__", [](const Tree& tree) { return tree.tokens.size(); })
        .def_prop_ro("tokens", [](const Tree& tree) { return array(tree.tokens); },
                     nb::rv_policy::automatic)
        .def_prop_ro("parents", [](const Tree& tree) { return array(tree.parents); },
                     nb::rv_policy::automatic)
        .def_prop_ro("probs", [](const Tree& tree) { return array(tree.probs); },
                     nb::rv_policy::automatic);

    nb::class_<Automaton> automaton(m, "Automaton");
    automaton.def(nb::init<>());
    take_tokens<Array>(automaton, nb::arg("tokens").noconvert(), nb::arg("tail").noconvert());
    take_tokens<List>(automaton, "tokens"_a, "tail"_a);
    automaton.def("open", &Automaton::open)
        .def("freeze", &Automaton::freeze, nb::call_guard<nb::gil_scoped_release>())
        .def("continuation",
             [](const Automaton& a, int64_t doc, int64_t end, int64_t n) {
                 return array(a.continuation(doc, end, n));
             }, "doc"_a, "end"_a, "n"_a)
        .def("tokens", [](const Automaton& a, int64_t doc) { return array(a.tokens(doc)); },
             "doc"_a)
        .def("check", &Automaton::check, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("frozen", &Automaton::frozen)
        .def_prop_ro("documents", &Automaton::documents)
        .def_prop_ro("size", &Automaton::size)
        .def_prop_ro("states", &Automaton::states)
        .def_prop_ro("nbytes", &Automaton::nbytes);
}
