// Python bindings. Array shapes are validated here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "drafter.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace draftline::drafting;

namespace {

// Arrays are not converted (noconvert): a converted copy could lose values, and one that is kept
// would dangle.
template <class T, int N = 1>
using Array = nb::ndarray<T, nb::numpy, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <class T, int N = 1>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

const std::array<const char*, kSources> kNames = {"prediction", "context",      "workspace",
                                                  "library",    "substitution", "recycling"};

Vocabulary* make_vocabulary(In<uint32_t> hashes, In<uint8_t> looks) {
  if (hashes.shape(0) != looks.shape(0))
    throw std::invalid_argument("hashes and looks must have the same length");
  return new Vocabulary{{hashes.data(), hashes.data() + hashes.shape(0)},
                        {looks.data(), looks.data() + looks.shape(0)}};
}

Weights* make_weights(std::optional<In<float>> values) {
  auto made = std::make_unique<Weights>();
  made->reset(0.01f, 20.f);
  if (values) {
    if (values->shape(0) != weight_count())
      throw std::invalid_argument("values has " + std::to_string(values->shape(0)) +
                                  " weights: expected " + std::to_string(weight_count()));
    made->values.assign(values->data(), values->data() + values->shape(0));
  }
  return made.release();
}

// A list of `make(value)`, new references, which does not grow one by one.
template <class T, class F>
nb::list list_of(const std::vector<T>& values, F make) {
  nb::list out = nb::steal<nb::list>(PyList_New(Py_ssize_t(values.size())));
  if (!out.is_valid()) nb::raise_python_error();
  for (size_t n = 0; n < values.size(); ++n) {
    PyObject* const one = make(values[n]);
    if (!one) nb::raise_python_error();
    PyList_SetItem(out.ptr(), Py_ssize_t(n), one);
  }
  return out;
}

nb::list ints(const std::vector<int32_t>& values) {
  return list_of(values, [](int32_t one) { return PyLong_FromLong(one); });
}

nb::tuple py_propose(Drafter& self, int capacity, In<double> costs) {
  if (capacity < 0 || int64_t(costs.shape(0)) < int64_t(capacity) + 1)
    throw std::invalid_argument(
        "costs has " + std::to_string(costs.shape(0)) +
        " entries: expected capacity + 1 = " + std::to_string(int64_t(capacity) + 1));
  const Tree& tree = self.propose(capacity, costs.data());
  static nb::object* names = nullptr;
  if (!names) {
    names = new nb::object[kSources];
    for (size_t n = 0; n < kSources; ++n) names[n] = nb::str(kNames[n]);
  }
  const nb::list probs =
      list_of(tree.probs, [](float one) { return PyFloat_FromDouble(double(one)); });
  const nb::list sources =
      list_of(tree.sources, [](uint8_t one) { return names[one].inc_ref().ptr(); });
  return nb::make_tuple(ints(tree.tokens), ints(tree.parents), probs, sources, ints(tree.places));
}

}  // namespace

NB_MODULE(_drafting, m) {
  m.def("weight_count", &weight_count);
  m.def("layout", &layout);
  nb::class_<Vocabulary>(m, "Vocabulary")
      .def(
          "__init__",
          [](Vocabulary* self, In<uint32_t> hashes, In<uint8_t> looks) {
            std::unique_ptr<Vocabulary> made(make_vocabulary(hashes, looks));
            new (self) Vocabulary(std::move(*made));
          },
          "hashes"_a.noconvert(), "looks"_a.noconvert());
  nb::class_<Ngram>(m, "Ngram")
      .def(nb::init<>())
      .def(
          "count",
          [](Ngram& self, In<int32_t> tokens, int least) {
            nb::gil_scoped_release unlocked;
            self.count(tokens.data(), int64_t(tokens.shape(0)), least);
          },
          "tokens"_a.noconvert(), "least"_a)
      .def(
          "add",
          [](Ngram& self, In<int32_t> tokens, const Ngram::Least& least, int part, int parts) {
            nb::gil_scoped_release unlocked;
            self.add(tokens.data(), int64_t(tokens.shape(0)), least, part, parts);
          },
          "tokens"_a.noconvert(), "least"_a, "part"_a, "parts"_a)
      .def("finish", &Ngram::finish, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("slots", &Ngram::slots)
      .def_prop_ro("table",
                   [](nb::object self) {
                     const Ngram& ngram = nb::cast<const Ngram&>(self);
                     return Array<const uint8_t, 1>(ngram.data(),
                                                    {ngram.slots() * sizeof(Ngram::Entry)}, self);
                   })
      .def_static(
          "mapped",
          [](In<uint8_t> table) {
            const size_t slots = table.shape(0) / sizeof(Ngram::Entry);
            if (table.shape(0) % sizeof(Ngram::Entry) || (slots & (slots - 1)) ||
                reinterpret_cast<uintptr_t>(table.data()) % alignof(Ngram::Entry))
              throw std::invalid_argument("not an n-gram table: build it again");
            Ngram made;
            made.adopt(reinterpret_cast<const Ngram::Entry*>(table.data()), slots);
            return made;
          },
          "table"_a.noconvert(), nb::keep_alive<0, 1>());
  nb::class_<Recycling>(m, "Recycling")
      .def(
          "__init__",
          [](Recycling* self, size_t vocabulary, int width) {
            if (width < 1 || width > 64)
              throw std::invalid_argument("width " + std::to_string(width) +
                                          ": must be between 1 and 64");
            new (self) Recycling(vocabulary, width);
          },
          "vocabulary"_a, "width"_a = 8)
      .def(
          "update",
          [](Recycling& self, In<int32_t> tokens, In<float, 2> logits) {
            if (tokens.shape(0) != logits.shape(0))
              throw std::invalid_argument("update: logits must have one row per token");
            nb::gil_scoped_release unlocked;
            for (size_t n = 0; n < tokens.shape(0); ++n)
              self.update(tokens.data()[n], logits.data() + n * logits.shape(1),
                          int64_t(logits.shape(1)));
          },
          "tokens"_a.noconvert(), "logits"_a.noconvert())
      .def(
          "put",
          [](Recycling& self, In<int32_t> tokens, In<int32_t, 2> ids, In<float, 2> logits) {
            if (tokens.shape(0) != ids.shape(0) || ids.shape(0) != logits.shape(0) ||
                ids.shape(1) != logits.shape(1))
              throw std::invalid_argument(
                  "put: ids and logits must have one row per token and equal shapes");
            for (size_t n = 0; n < tokens.shape(0); ++n) self.prefetch(tokens.data()[n]);
            for (size_t n = 0; n < tokens.shape(0); ++n)
              self.put(tokens.data()[n], ids.data() + n * ids.shape(1),
                       logits.data() + n * ids.shape(1), int(ids.shape(1)));
          },
          "tokens"_a.noconvert(), "ids"_a.noconvert(), "logits"_a.noconvert())
      .def("clear", &Recycling::clear)
      .def_prop_ro("table", [](nb::object self) {
        const Recycling& table = nb::cast<const Recycling&>(self);
        return Array<const int32_t, 2>(table.data(), {table.vocabulary(), size_t(table.width())},
                                       self);
      });
  nb::class_<Weights>(m, "Weights")
      .def(
          "__init__",
          [](Weights* self, std::optional<In<float>> values) {
            std::unique_ptr<Weights> made(make_weights(values));
            new (self) Weights(std::move(*made));
          },
          "values"_a.noconvert() = nb::none())
      .def("reset", &Weights::reset, "square"_a, "hashed"_a)
      .def_prop_ro("values",
                   [](nb::object self) {
                     Weights& weights = nb::cast<Weights&>(self);
                     return Array<float, 1>(weights.values.data(), {weights.values.size()}, self);
                   })
      .def_static("recycling", &recycling_weights)
      .def_prop_ro("squares", [](nb::object self) {
        Weights& weights = nb::cast<Weights&>(self);
        return Array<float, 1>(weights.squares.data(), {weights.squares.size()}, self);
      });
  nb::class_<Drafter>(m, "Drafter")
      .def(nb::init<const Vocabulary*, const Ngram*, Weights*>(), "vocabulary"_a, "ngram"_a,
           "weights"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>(), nb::keep_alive<1, 4>())
      .def(
          "begin",
          [](Drafter& self, In<int32_t> expected, int start, In<int32_t> before) {
            self.begin(expected.data(), int64_t(expected.shape(0)), start, before.data(),
                       int64_t(before.shape(0)));
          },
          "expected"_a.noconvert(), "start"_a, "before"_a.noconvert())
      .def("align", &Drafter::align, "position"_a)
      .def(
          "files",
          [](Drafter& self, In<int32_t> tokens, In<int32_t> parents, In<double> probs, int match) {
            const size_t size = tokens.shape(0);
            if (parents.shape(0) != size || probs.shape(0) != size)
              throw std::invalid_argument(
                  "files: tokens, parents and probs must have the same length");
            for (size_t n = 0; n < size; ++n)
              if (parents.data()[n] < -1 || parents.data()[n] >= int64_t(n))
                throw std::invalid_argument("files: the parent of node " + std::to_string(n) +
                                            " does not precede it");
            self.files().set(tokens.data(), parents.data(), probs.data(), tokens.shape(0), match);
          },
          "tokens"_a.noconvert(), "parents"_a.noconvert(), "probs"_a.noconvert(), "match"_a)
      .def("recycle", &Drafter::recycle, "table"_a, nb::keep_alive<1, 2>())
      .def("propose", &py_propose, "capacity"_a, "costs"_a.noconvert())
      .def(
          "commit",
          [](Drafter& self, const nb::sequence& tokens, float learning) {
            std::vector<int32_t> ids;
            for (const auto one : tokens) {
              const Py_ssize_t id =
                  PyNumber_AsSsize_t(one.ptr(), PyExc_OverflowError);  // integers only
              if (id == -1 && PyErr_Occurred()) nb::raise_python_error();
              if (id != int32_t(id))
                throw std::invalid_argument("commit: " + std::to_string(id) + " is not a token id");
              ids.push_back(int32_t(id));
            }
            self.commit(ids.data(), int64_t(ids.size()), learning);
          },
          "tokens"_a, "learning"_a)
      .def(
          "fit",
          [](Drafter& self, In<int32_t> tokens, float learning, std::optional<In<int32_t, 2>> files,
             std::optional<In<float, 2>> probs, std::optional<In<int32_t>> matches) {
            const auto fits = [&](const auto& one) {
              return one && one->shape(0) == tokens.shape(0) &&
                     (one->ndim() == 1 || one->shape(1) == files->shape(1));
            };
            if (files && (!fits(files) || !fits(probs) || !fits(matches) || files->shape(1) > 16))
              throw std::invalid_argument(
                  "files and probs must be [tokens, n <= 16], matches [tokens]");
            nb::gil_scoped_release unlocked;
            FilesAt at{};
            if (files)
              at = {files->data(), probs->data(), matches->data(), int64_t(files->shape(1))};
            return self.fit(tokens.data(), int64_t(tokens.shape(0)), learning,
                            files ? &at : nullptr);
          },
          "tokens"_a.noconvert(), "learning"_a, "files"_a.noconvert() = nb::none(),
          "probs"_a.noconvert() = nb::none(), "matches"_a.noconvert() = nb::none())
      .def(
          "leave_out",
          [](Drafter& self, const std::string& part) {
            static constexpr const char* parts[] = {
                "near",    "zero",      "substitutions", "far",    "output",  "files",
                "library", "recycling", "form",          "around", "siblings"};
            for (unsigned n = 0; n < std::size(parts); ++n)
              if (part == parts[n]) return self.leave_out(1u << n);
            throw std::invalid_argument(
                "part '" + part +
                "': must be one of near, zero, substitutions, far, output, files, "
                "library, recycling, form, around, siblings");
          },
          "part"_a)
      .def_prop_ro("run", [](const Drafter& self) { return self.at().gap ? 0 : self.at().run; });
}
