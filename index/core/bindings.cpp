// index._core, the Python bindings. Documented in _core.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "automaton.hpp"
#include "frozen.hpp"
#include "segments.hpp"
#include "suffix_sort.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using draftline::Automaton;
using draftline::Documents;
using draftline::Frozen;
using draftline::Label;
using draftline::Match;
using draftline::Segments;
using draftline::Tokens;
using draftline::Tree;

namespace {

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = Array<int32_t>;
using List = std::vector<int32_t>;

template <class Sequence>
auto span(const Sequence& items) {
  return std::span(items.data(), items.size());
}

// Short calls keep the GIL: reacquiring it can take longer than the call.
constexpr size_t kLongInput = 2048;    // tokens
constexpr size_t kLongScan = 1 << 18;  // tokens in an automaton

class Unlocked {
 public:
  explicit Unlocked(bool unlock) {
    if (unlock) release_.emplace();
  }

 private:
  std::optional<nb::gil_scoped_release> release_;
};

bool long_scan(const Automaton& a) { return a.size() > kLongScan; }

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

// A view, without a copy, that keeps the segment alive.
template <class T>
auto view(std::span<const T> items, nb::handle owner) {
  return nb::ndarray<nb::numpy, const T, nb::ndim<1>>(items.data(), {items.size()}, owner);
}

// Every method that takes tokens accepts an int32 array or a sequence of ints.
template <class Ids, class Arg>
void take_tokens(nb::class_<Automaton, Documents>& automaton, Arg tokens, Arg tail) {
  automaton
      .def(
          "add",
          [](Automaton& a, const Ids& t, int64_t changed, int32_t path, int32_t folder) {
            Unlocked unlocked(span(t).size() >= kLongInput);
            return a.add(span(t), {changed, path, folder});
          },
          tokens, "changed"_a = 0, "path"_a = -1, "folder"_a = -1)
      .def(
          "extend",
          [](Automaton& a, const Ids& t) {
            Unlocked unlocked(span(t).size() >= kLongInput);
            a.extend(span(t));
          },
          tokens)
      .def(
          "match",
          [](const Automaton& a, const Ids& t, int64_t k, int64_t limit, bool followed) {
            Unlocked unlocked(long_scan(a));
            return a.match(span(t), k, limit, followed);
          },
          tail, "k"_a = 8, "limit"_a = 64, nb::kw_only(), "followed"_a = false)
      .def(
          "tree",
          [](const Automaton& a, const Ids& t, int64_t nodes, int64_t width, int64_t limit,
             int64_t most) {
            Unlocked unlocked(long_scan(a));
            return a.tree(span(t), nodes, width, limit, most);
          },
          tail, "nodes"_a = 64, "width"_a = 8, "limit"_a = 64, nb::kw_only(), "most"_a = 1024);
}

// Segments, and references to the Python objects that own them.
struct Parts {
  nb::list owners;
  Segments segments;
};

Parts parts_of(nb::list parts) {
  std::vector<const Documents*> found;
  nb::list owners;
  for (nb::handle part : parts) {
    found.push_back(nb::cast<const Documents*>(part));
    owners.append(part);
  }
  return {owners, Segments(std::move(found))};
}

template <class Ids, class Arg>
void ask_segments(nb::class_<Parts>& parts, Arg tail) {
  parts
      .def(
          "match",
          [](const Parts& p, const Ids& t, int64_t k, int64_t limit, int32_t path, int32_t folder) {
            const auto found = p.segments.match(span(t), k, limit, path, folder);
            nb::list places;
            for (const auto& [part, doc, end, prob] : found.best)
              places.append(nb::make_tuple(part, doc, end, prob));
            return nb::make_tuple(found.length, found.count, places);
          },
          tail, "k"_a = 8, "limit"_a = 64, "path"_a = -1, "folder"_a = -1)
      .def(
          "tree",
          [](const Parts& p, const Ids& t, int64_t nodes, int64_t width, int64_t limit,
             int64_t most,
             int64_t least) { return p.segments.tree(span(t), nodes, width, limit, most, least); },
          tail, "nodes"_a = 64, "width"_a = 8, "limit"_a = 64, nb::kw_only(), "most"_a = 1024,
          "least"_a = 1);
}

std::vector<Label> labels_of(size_t size, const std::optional<Array<int64_t>>& changed,
                             const std::optional<Ids>& paths, const std::optional<Ids>& folders) {
  std::vector<Label> labels(size);
  const auto take = [&](const auto& from, auto member, const char* name) {
    if (!from) return;
    if (from->size() != size)
      throw std::invalid_argument(std::string(name) + ": expected one entry per document");
    for (size_t doc = 0; doc < size; ++doc) labels[doc].*member = from->data()[doc];
  };
  for (size_t doc = 0; doc < size; ++doc) labels[doc].changed = static_cast<int64_t>(doc);
  take(changed, &Label::changed, "changed");
  take(paths, &Label::path, "paths");
  take(folders, &Label::folder, "folders");
  return labels;
}

Frozen mapped(Ids text, Array<uint32_t> starts, Array<uint32_t> order, Array<uint32_t> ranks,
              std::optional<Array<uint64_t>> keys, std::optional<Array<uint64_t>> followed,
              std::optional<Array<uint32_t>> tops, const std::optional<Array<int64_t>>& changed,
              const std::optional<Ids>& paths, const std::optional<Ids>& folders) {
  struct Kept {
    Ids text;
    Array<uint32_t> starts, order, ranks;
    std::optional<Array<uint64_t>> keys, followed;
    std::optional<Array<uint32_t>> tops;
  };
  Frozen::Arrays arrays{span(text), span(starts), span(order), span(ranks)};
  if (keys) arrays.keys = span(*keys);
  if (followed) arrays.followed = span(*followed);
  if (tops) arrays.tops = span(*tops);
  std::vector<Label> labels(starts.size());
  if (changed) labels = labels_of(starts.size(), changed, paths, folders);
  auto kept = std::make_shared<Kept>(Kept{text, starts, order, ranks, keys, followed, tops});
  nb::gil_scoped_release unlocked;
  return Frozen(arrays, std::move(kept), labels);
}

// A view of one of the arrays of a segment.
template <auto member>
auto view_of(nb::handle_t<Frozen> self) {
  return view(nb::cast<const Frozen&>(self).arrays().*member, self);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // objects may outlive an exit by Ctrl-C
  m.def("stop_builds", [](bool stop) { draftline::stop_sorting = stop; }, "stop"_a);

  nb::class_<Match>(m, "Match")
      .def_ro("length", &Match::length)
      .def_ro("count", &Match::count)
      .def_prop_ro(
          "docs", [](const Match& match) { return array(match.docs); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "ends", [](const Match& match) { return array(match.ends); }, nb::rv_policy::automatic);

  nb::class_<Tree>(m, "Tree")
      .def("__len__", [](const Tree& tree) { return tree.tokens.size(); })
      .def_ro("length", &Tree::length)
      .def_prop_ro(
          "tokens", [](const Tree& tree) { return array(tree.tokens); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "parents", [](const Tree& tree) { return array(tree.parents); }, nb::rv_policy::automatic)
      .def_prop_ro(
          "probs", [](const Tree& tree) { return array(tree.probs); }, nb::rv_policy::automatic);

  nb::class_<Documents>(m, "Documents")
      .def(
          "continuation",
          [](const Documents& d, int64_t doc, int64_t end, int64_t n) {
            return array(d.continuation(doc, end, n));
          },
          "doc"_a, "end"_a, "n"_a)
      .def(
          "tokens", [](const Documents& d, int64_t doc) { return array(d.tokens(doc)); }, "doc"_a)
      .def(
          "label",
          [](Documents& d, int64_t doc, int64_t changed, int32_t path, int32_t folder) {
            d.set_label(doc, {changed, path, folder});
          },
          "doc"_a, "changed"_a, "path"_a, "folder"_a)
      .def_prop_ro("documents", &Documents::documents)
      .def_prop_ro("size", &Documents::size)
      .def_prop_ro("living", &Documents::living);

  nb::class_<Automaton, Documents> automaton(m, "Automaton");
  automaton.def(nb::init<>());
  take_tokens<Ids>(automaton, nb::arg("tokens").noconvert(), nb::arg("tail").noconvert());
  take_tokens<List>(automaton, "tokens"_a, "tail"_a);
  automaton
      .def(
          "open",
          [](Automaton& a, int64_t changed, int32_t path, int32_t folder) {
            return a.open({changed, path, folder});
          },
          "changed"_a = 0, "path"_a = -1, "folder"_a = -1)
      .def("kill", &Automaton::kill, "doc"_a)
      .def("check", &Automaton::check, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("states", &Automaton::states)
      .def_prop_ro("nbytes", &Automaton::nbytes);

  nb::class_<Frozen, Documents>(m, "Frozen")
      .def(
          "__init__",
          [](Frozen* self, const std::vector<Ids>& documents,
             const std::optional<Array<int64_t>>& changed, const std::optional<Ids>& paths,
             const std::optional<Ids>& folders) {
            const auto labels = labels_of(documents.size(), changed, paths, folders);
            std::vector<Tokens> texts;
            for (const Ids& ids : documents) texts.push_back(span(ids));
            nb::gil_scoped_release unlocked;
            new (self) Frozen(texts, labels);
          },
          "documents"_a, "changed"_a = nb::none(), "paths"_a = nb::none(), "folders"_a = nb::none())
      .def_static("mapped", &mapped, "text"_a.noconvert(), "starts"_a.noconvert(),
                  "order"_a.noconvert(), "ranks"_a.noconvert(), "keys"_a.noconvert() = nb::none(),
                  "followed"_a.noconvert() = nb::none(), "tops"_a.noconvert() = nb::none(),
                  "changed"_a = nb::none(), "paths"_a = nb::none(), "folders"_a = nb::none())
      .def(
          "kill", [](Frozen& frozen, int64_t doc) { frozen.kill(doc); }, "doc"_a)
      .def("check", &Frozen::check, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("text", &view_of<&Frozen::Arrays::text>, nb::rv_policy::reference)
      .def_prop_ro("starts", &view_of<&Frozen::Arrays::starts>, nb::rv_policy::reference)
      .def_prop_ro("order", &view_of<&Frozen::Arrays::order>, nb::rv_policy::reference)
      .def_prop_ro("ranks", &view_of<&Frozen::Arrays::ranks>, nb::rv_policy::reference)
      .def_prop_ro("keys", &view_of<&Frozen::Arrays::keys>, nb::rv_policy::reference)
      .def_prop_ro("followed", &view_of<&Frozen::Arrays::followed>, nb::rv_policy::reference)
      .def_prop_ro("tops", &view_of<&Frozen::Arrays::tops>, nb::rv_policy::reference)
      .def_prop_ro("nbytes", &Frozen::nbytes);

  nb::class_<Parts> parts(m, "Segments");
  parts.def(
      "__init__", [](Parts* self, nb::list list) { new (self) Parts(parts_of(list)); }, "parts"_a);
  ask_segments<Ids>(parts, nb::arg("tail").noconvert());
  ask_segments<List>(parts, "tail"_a);
}
