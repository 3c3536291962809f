// Python's view of the kernels: shapes are checked here, arithmetic is elsewhere.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <complex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "attention.hpp"
#include "cpu.hpp"
#include "delta_rule.hpp"
#include "experts.hpp"
#include "pass_inputs.hpp"
#include "pool.hpp"
#include "qlinear.hpp"
#include "rows.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace draftline;

namespace {

template <class T, int N>
using Array = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;

// "x (3, 7): expected (3, 8)"
template <class A>
void expect(const char* name, const A& array, std::initializer_list<size_t> shape) {
  const auto text = [](auto size, size_t n) {
    std::string s = "(";
    for (size_t i = 0; i < n; ++i) s += (i ? ", " : "") + std::to_string(size(i));
    return s + ")";
  };
  for (size_t i = 0; i < shape.size(); ++i) {
    if (array.shape(i) == shape.begin()[i]) continue;
    throw std::invalid_argument(std::string(name) + " has shape " +
                                text([&](size_t j) { return array.shape(j); }, shape.size()) +
                                ": expected " +
                                text([&](size_t j) { return shape.begin()[j]; }, shape.size()));
  }
}

using Bias = std::optional<Array<const float, 1>>;
using Rows = Array<const float, 2>;

template <class T>
void make_qlinear(QLinear* self, Array<const T, 2> weight, Bias bias, int bits) {
  const size_t out = weight.shape(0), in = weight.shape(1);
  if (out == 0 || in == 0) throw std::invalid_argument("weight is empty: give at least one value");
  if (bits != 4 && bits != 8)
    throw std::invalid_argument("bits " + std::to_string(bits) + ": must be 4 or 8");
  if (bias) expect("bias", *bias, {out});
  const float* b = bias ? bias->data() : nullptr;
  nb::gil_scoped_release unlocked;
  const auto* data = reinterpret_cast<const uint8_t*>(weight.data());
  new (self)
      QLinear({{bits == 4 ? Format::Q4 : Format::Q8, data, int(out), std::is_same_v<T, float>}}, b,
              int(in));
}

using Stored = std::pair<int, Array<const uint8_t, 2>>;

QLinear* stored_qlinear(const std::vector<Stored>& parts, int in, Bias bias) {
  if (parts.empty() || in < 1) throw std::invalid_argument("weight is empty: give at least one");
  std::vector<QLinear::Rows> rows;
  size_t out = 0;
  for (const auto& [type, data] : parts) {
    if (!known(type))
      throw std::invalid_argument("weights of type " + std::to_string(type) + " are not known");
    const Format format = Format(type);
    if (in % block_inputs(format))
      throw std::invalid_argument("weight has " + std::to_string(in) + " inputs: expected whole " +
                                  "blocks of " + std::to_string(block_inputs(format)));
    expect("weight", data, {data.shape(0), row_bytes(format, in)});
    rows.push_back({format, data.data(), int(data.shape(0))});
    out += data.shape(0);
  }
  if (out == 0) throw std::invalid_argument("weight is empty: give at least one");
  if (bias) expect("bias", *bias, {out});
  nb::gil_scoped_release unlocked;
  return new QLinear(rows, bias ? bias->data() : nullptr, in);
}

void py_dequantize(int type, Array<const uint8_t, 2> rows, Array<float, 2> out) {
  if (!known(type))
    throw std::invalid_argument("weights of type " + std::to_string(type) + " are not known");
  const Format format = Format(type);
  const int in = int(out.shape(1));
  if (in % block_inputs(format))
    throw std::invalid_argument("out has " + std::to_string(in) + " columns: expected whole " +
                                "blocks of " + std::to_string(block_inputs(format)));
  expect("rows", rows, {out.shape(0), row_bytes(format, in)});
  nb::gil_scoped_release unlocked;
  parallel(int(out.shape(0)), [&](int row) {
    dequantize(format, rows.data() + size_t(row) * rows.shape(1), in,
               out.data() + size_t(row) * in);
  });
}

using Choice = Array<int32_t, 2>;

void py_route(Rows logits, bool normalise, Choice choice, Array<float, 2> weights, bool sigmoid,
              Bias bias, float scale, Bias expert_scales) {
  const size_t rows = logits.shape(0), experts = logits.shape(1), k = choice.shape(1);
  expect("choice", choice, {rows, k});
  expect("weights", weights, {rows, k});
  if (bias) expect("bias", *bias, {experts});
  if (expert_scales) expect("expert_scales", *expert_scales, {experts});
  if (k < 1 || k > experts)
    throw std::invalid_argument("choice has " + std::to_string(k) + " columns: must be 1 to " +
                                std::to_string(experts));
  nb::gil_scoped_release unlocked;
  const Routing routing{int(experts),
                        int(k),
                        normalise,
                        sigmoid,
                        bias ? bias->data() : nullptr,
                        scale,
                        expert_scales ? expert_scales->data() : nullptr};
  route(routing, logits.data(), int(rows), choice.data(), weights.data());
}

Gate gate_named(const std::string& name) {
  if (name == "silu") return Gate::silu;
  if (name == "gelu") return Gate::gelu;
  if (name == "clamped_swiglu") return Gate::clamped;
  throw std::invalid_argument("activation " + name + ": must be silu, gelu or clamped_swiglu");
}

void py_run_experts(const std::vector<const QLinear*>& gate_up,
                    const std::vector<const QLinear*>& down, Rows x, Choice choice,
                    Array<float, 2> weights, Array<float, 2> out, const std::string& activation,
                    float alpha, float limit) {
  const Activation gate{gate_named(activation), alpha, limit};
  const size_t rows = x.shape(0), k = choice.shape(1);
  if (gate_up.empty() || gate_up.size() != down.size())
    throw std::invalid_argument("experts: expected as many gate_up as down, and at least one");
  for (size_t e = 0; e < gate_up.size(); ++e)
    if (gate_up[e]->in != gate_up[0]->in || gate_up[e]->out != 2 * down[0]->in ||
        down[e]->in != down[0]->in || down[e]->out != down[0]->out)
      throw std::invalid_argument("expert " + std::to_string(e) + ": its shape is not the others'");
  expect("x", x, {rows, size_t(gate_up[0]->in)});
  expect("choice", choice, {rows, k});
  expect("weights", weights, {rows, k});
  expect("out", out, {rows, size_t(down[0]->out)});
  for (size_t i = 0; i < rows * k; ++i)
    if (choice.data()[i] < 0 || size_t(choice.data()[i]) >= gate_up.size())
      throw std::invalid_argument("choice has " + std::to_string(choice.data()[i]) +
                                  ": must be below " + std::to_string(gate_up.size()));
  nb::gil_scoped_release unlocked;
  Experts{gate_up, down, gate}.forward(x.data(), choice.data(), weights.data(), int(rows), int(k),
                                       out.data());
}

void py_forward_tiles(const QLinear& q, Array<const float, 2> x, Array<float, 2> out,
                      Array<const int32_t, 1> tiles) {
  expect("x", x, {x.shape(0), size_t(q.in)});
  expect("out", out, {x.shape(0), size_t(q.out)});
  for (size_t i = 0; i < tiles.shape(0); ++i)
    if (tiles.data()[i] < 0 || tiles.data()[i] >= q.tiles())
      throw std::invalid_argument("tile " + std::to_string(tiles.data()[i]) + ": must be 0 to " +
                                  std::to_string(q.tiles() - 1));
  nb::gil_scoped_release unlocked;
  q.forward(x.data(), out.data(), int(x.shape(0)), tiles.data(), int(tiles.shape(0)));
}

void py_channels(const QLinear& q, Array<const int64_t, 1> channels, Array<float, 2> out) {
  expect("out", out, {channels.shape(0), size_t(q.in)});
  for (size_t i = 0; i < channels.shape(0); ++i)
    if (channels.data()[i] < 0 || channels.data()[i] >= q.out)
      throw std::invalid_argument("channel " + std::to_string(channels.data()[i]) +
                                  ": must be 0 to " + std::to_string(q.out - 1));
  nb::gil_scoped_release unlocked;
  q.dequantize(channels.data(), int(channels.shape(0)), out.data());
}

// A cache's rows: d floats each, or in 8 bits their bytes.
template <class T, class U>
using EitherRows = std::variant<Array<T, 3>, Array<U, 3>>;

using ConstCache = EitherRows<const float, const uint8_t>;

// Checks keys and values of [heads, capacity] rows; whether they are in 8 bits.
template <class C>
bool expect_cache(const C& keys, const C& values, size_t heads, size_t capacity, size_t d) {
  const bool q8 = keys.index() == 1;
  const size_t width = q8 ? CacheRows{int(d), true}.bytes() : d;
  const auto check = [&](const char* name, const C& rows) {
    if ((rows.index() == 1) != q8)
      throw std::invalid_argument("keys and values: give both in f32, or both in 8 bits");
    std::visit([&](const auto& one) { expect(name, one, {heads, capacity, width}); }, rows);
  };
  check("keys", keys);
  check("values", values);
  return q8;
}

template <class C>
size_t shape_of(const C& rows, size_t axis) {
  return std::visit([&](const auto& one) { return one.shape(axis); }, rows);
}

template <class P, class C>
P* data_of(const C& rows) {
  return std::visit([](const auto& one) { return static_cast<P*>(one.data()); }, rows);
}

void py_attend(Array<const float, 3> q, ConstCache keys, ConstCache values, int base,
               Array<const int32_t, 1> parents, float scale, Array<float, 2> out, int window,
               float softcap, Bias sinks) {
  const size_t rows = q.shape(0), heads = q.shape(1), d = q.shape(2);
  const size_t kv = shape_of(keys, 0), capacity = shape_of(keys, 1);
  const bool q8 = expect_cache(keys, values, kv, capacity, d);
  expect("parents", parents, {rows});
  expect("out", out, {rows, heads * d});
  if (sinks) expect("sinks", *sinks, {heads});
  nb::gil_scoped_release unlocked;
  attend({q.data(), data_of<const void>(keys), data_of<const void>(values), parents.data(),
          out.data(), int(rows), int(heads), int(kv), int(capacity), int(d), base, scale, window,
          softcap, sinks ? sinks->data() : nullptr, q8});
}

void py_delta_rule(Rows mixed, Rows a, Rows b, Rows conv, Array<const float, 1> A,
                   Array<const float, 1> dt_bias, int key_heads,
                   Array<const int32_t, 1> key_head_of, int committed, int first,
                   Array<const int32_t, 1> parents, Array<float, 2> tail, Array<float, 3> state,
                   Array<float, 2> out) {
  const size_t rows = mixed.shape(0), taps = conv.shape(1);
  const size_t value_heads = state.shape(0), key_dim = state.shape(1), value_dim = state.shape(2);
  const auto refuse = [](const char* name, int value, int least, size_t most) {
    throw std::invalid_argument(std::string(name) + " " + std::to_string(value) + ": must be " +
                                std::to_string(least) + " to " + std::to_string(most));
  };
  if (key_heads < 1 || size_t(key_heads) > mixed.shape(1))
    refuse("key_heads", key_heads, 1, mixed.shape(1));
  if (committed < 0 || size_t(committed) > rows) refuse("committed", committed, 0, rows);
  if (first < 0 || first > committed) refuse("first", first, 0, committed);
  const size_t channels = 2 * key_heads * key_dim + value_heads * value_dim;
  expect("mixed", mixed, {rows, channels});
  expect("a", a, {rows, value_heads});
  expect("b", b, {rows, value_heads});
  expect("conv", conv, {channels, taps});
  expect("A", A, {value_heads});
  expect("dt_bias", dt_bias, {value_heads});
  expect("key_head_of", key_head_of, {value_heads});
  expect("parents", parents, {rows - committed});
  expect("tail", tail, {taps ? taps - 1 : 0, channels});
  expect("out", out, {rows - first, value_heads * value_dim});
  nb::gil_scoped_release unlocked;
  delta_rule({mixed.data(), a.data(), b.data(), conv.data(), A.data(), dt_bias.data(),
              key_head_of.data(), parents.data(), tail.data(), state.data(), out.data(), int(rows),
              key_heads, int(value_heads), int(key_dim), int(value_dim), int(taps), committed,
              first});
}

void py_rms_norm(Rows x, Array<const float, 1> weight, float eps, Array<float, 2> out) {
  const size_t rows = x.shape(0), n = x.shape(1);
  expect("weight", weight, {n});
  expect("out", out, {rows, n});
  nb::gil_scoped_release unlocked;
  rms_norm(x.data(), weight.data(), eps, out.data(), int(rows), int(n));
}

void py_add_rms_norm(Array<float, 2> residual, Rows delta, Array<const float, 1> weight, float eps,
                     Array<float, 2> out) {
  const size_t rows = residual.shape(0), n = residual.shape(1);
  expect("delta", delta, {rows, n});
  expect("weight", weight, {n});
  expect("out", out, {rows, n});
  nb::gil_scoped_release unlocked;
  add_rms_norm(residual.data(), delta.data(), weight.data(), eps, out.data(), int(rows), int(n));
}

void gate_rows(const Activation& activation, Rows gate_up, Array<float, 2> out) {
  const size_t rows = out.shape(0), n = out.shape(1);
  expect("gate_up", gate_up, {rows, 2 * n});
  nb::gil_scoped_release unlocked;
  gate_mul(activation, gate_up.data(), out.data(), int(rows), int(n));
}

void py_silu_mul(Rows gate_up, Array<float, 2> out) { gate_rows({Gate::silu}, gate_up, out); }

void py_gelu_mul(Rows gate_up, Array<float, 2> out) { gate_rows({Gate::gelu}, gate_up, out); }

void py_clamped_swiglu(Rows gate_up, float alpha, float limit, Array<float, 2> out) {
  gate_rows({Gate::clamped, alpha, limit}, gate_up, out);
}

template <int N>
using Apart = nb::ndarray<const float, nb::ndim<N>, nb::device::cpu>;  // rows with space between

// Floats from one row to the next, of rows that are contiguous themselves.
template <class A>
size_t row_stride(const char* name, const A& array) {
  int64_t next = 1;
  for (size_t i = array.ndim(); i-- > 1; next *= int64_t(array.shape(i)))
    if (array.shape(i) > 1 && array.stride(i) != next)
      throw std::invalid_argument(std::string(name) + " has gaps in its rows: give it in C order");
  if (array.shape(0) > 1 && array.stride(0) < next)
    throw std::invalid_argument(std::string(name) + " has rows that overlap: give them in order");
  return size_t(array.stride(0));
}

void py_sigmoid_mul(Apart<2> gate, Array<float, 2> x) {
  const size_t rows = x.shape(0), n = x.shape(1);
  expect("gate", gate, {rows, n});
  const size_t stride = row_stride("gate", gate);
  nb::gil_scoped_release unlocked;
  sigmoid_mul(gate.data(), stride, x.data(), int(rows), int(n));
}

void py_gated_norm(Array<const float, 3> x, Apart<3> gate, Array<const float, 1> weight, float eps,
                   Array<float, 3> out) {
  const size_t rows = x.shape(0), heads = x.shape(1), d = x.shape(2);
  expect("gate", gate, {rows, heads, d});
  expect("weight", weight, {d});
  expect("out", out, {rows, heads, d});
  const size_t stride = row_stride("gate", gate);
  nb::gil_scoped_release unlocked;
  gated_norm(x.data(), gate.data(), stride, weight.data(), eps, out.data(), int(rows), int(heads),
             int(d));
}

void py_softcap(Array<float, 2> x, float cap) {
  if (!(cap > 0)) throw std::invalid_argument("cap " + std::to_string(cap) + ": must be above 0");
  nb::gil_scoped_release unlocked;
  softcap(x.data(), cap, int(x.shape(0)), int(x.shape(1)));
}

using Cache = std::optional<EitherRows<float, uint8_t>>;
using Turn = std::optional<Array<const std::complex<float>, 2>>;

void py_split_heads(Rows qkv, Array<float, 3> q, Cache keys, Cache values, int base, Turn turn,
                    Bias q_norm, Bias k_norm, bool norm_values, float eps, Bias q_factor,
                    bool values_of_keys) {
  const size_t rows = q.shape(0), heads = q.shape(1), d = q.shape(2);
  if (keys.has_value() != values.has_value())
    throw std::invalid_argument("keys and values: give both, or neither");
  if (d > size_t(kMaxHeadSize))
    throw std::invalid_argument("head size " + std::to_string(d) + ": must be at most " +
                                std::to_string(kMaxHeadSize));
  const size_t kv = keys ? shape_of(*keys, 0) : 0, capacity = keys ? shape_of(*keys, 1) : 0;
  bool q8 = false;
  if (keys) {
    q8 = expect_cache(*keys, *values, kv, capacity, d);
    if (base < 0 || size_t(base) + rows > capacity)
      throw std::invalid_argument("base " + std::to_string(base) + " and " + std::to_string(rows) +
                                  " rows: must fit the cache's " + std::to_string(capacity));
  }
  const size_t need = (heads + kv * (values_of_keys ? 1 : 2)) * d, total = qkv.shape(1);
  expect("qkv", qkv, {rows, std::max(need, total)});
  if (turn) {
    expect("turn", *turn, {rows, turn->shape(1)});
    if (2 * turn->shape(1) > d)
      throw std::invalid_argument("turn has " + std::to_string(turn->shape(1)) +
                                  " pairs: heads have " + std::to_string(d / 2));
  }
  if (q_norm) expect("q_norm", *q_norm, {d});
  if (k_norm) expect("k_norm", *k_norm, {d});
  if (q_factor) expect("q_factor", *q_factor, {rows});
  nb::gil_scoped_release unlocked;
  split_heads({.qkv = qkv.data(),
               .rows = int(rows),
               .total = int(total),
               .heads = int(heads),
               .kv_heads = int(kv),
               .d = int(d),
               .q = q.data(),
               .keys = keys ? data_of<void>(*keys) : nullptr,
               .values = values ? data_of<void>(*values) : nullptr,
               .capacity = int(capacity),
               .base = base,
               .turn = turn ? reinterpret_cast<const float*>(turn->data()) : nullptr,
               .pairs = turn ? int(turn->shape(1)) : 0,
               .q_norm = q_norm ? q_norm->data() : nullptr,
               .k_norm = k_norm ? k_norm->data() : nullptr,
               .norm_values = norm_values,
               .eps = eps,
               .q_factor = q_factor ? q_factor->data() : nullptr,
               .values_of_keys = values_of_keys,
               .q8 = q8});
}

void py_fill_pass(Array<int64_t, 1> out, int rows, bool paths, int64_t first,
                  const std::vector<int64_t>& tokens, const std::vector<int32_t>& parents,
                  int64_t vocab, int64_t keys, int64_t values, int64_t capacity, int64_t base) {
  const PassInputs inputs{rows, paths};
  if (rows < 64 || rows > 256 || rows % 64)
    throw std::invalid_argument("rows " + std::to_string(rows) + ": must be 64, 128, 192 or 256");
  expect("out", out, {inputs.size()});
  const size_t count = 1 + tokens.size();
  if (parents.size() != tokens.size() || count > size_t(rows))
    throw std::invalid_argument(std::to_string(tokens.size()) + " tokens with " +
                                std::to_string(parents.size()) +
                                " parents: expected as many, at most " + std::to_string(rows - 1));
  const auto unknown = [&](int64_t token) { return token < 0 || token >= vocab; };
  if (unknown(first) || std::any_of(tokens.begin(), tokens.end(), unknown))
    throw nb::index_error(
        ("the model has tokens 0 to " + std::to_string(vocab - 1) + " only").c_str());
  for (size_t node = 0; node < parents.size(); ++node)
    if (parents[node] < -1 || parents[node] >= int64_t(node))
      throw std::invalid_argument("parent " + std::to_string(parents[node]) + " of node " +
                                  std::to_string(node) + ": must be an earlier node, or -1");
  const int64_t header[] = {keys, values, capacity};
  inputs.fill(first, tokens.data(), parents.data(), int(count), header, base, out.data());
}

}  // namespace

NB_MODULE(_kernels, m) {
  nb::set_leak_warnings(false);  // a user who leaves by Ctrl-C is not told about objects
  m.def("isa", [] { return isa_name(); });
  m.def("set_isa", &set_isa, "name"_a);
  m.def("threads", &threads);
  m.def("set_threads", &set_threads, "count"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def("lower_priority", &lower_priority);

  const auto fixed = [](const char* name) { return nb::arg(name).noconvert(); };  // never a copy
  m.def("attend", &py_attend, fixed("q"), fixed("keys"), fixed("values"), "base"_a,
        fixed("parents"), "scale"_a, fixed("out"), "window"_a = 0, "softcap"_a = 0.0f,
        fixed("sinks") = nb::none());
  m.def("delta_rule", &py_delta_rule, fixed("mixed"), fixed("a"), fixed("b"), fixed("conv"),
        fixed("A"), fixed("dt_bias"), "key_heads"_a, fixed("key_head_of"), "committed"_a, "first"_a,
        fixed("parents"), fixed("tail"), fixed("state"), fixed("out"));
  m.def("rms_norm", &py_rms_norm, fixed("x"), fixed("weight"), "eps"_a, fixed("out"));
  m.def("add_rms_norm", &py_add_rms_norm, fixed("residual"), fixed("delta"), fixed("weight"),
        "eps"_a, fixed("out"));
  m.def("silu_mul", &py_silu_mul, fixed("gate_up"), fixed("out"));
  m.def("gelu_mul", &py_gelu_mul, fixed("gate_up"), fixed("out"));
  m.def("clamped_swiglu", &py_clamped_swiglu, fixed("gate_up"), "alpha"_a, "limit"_a, fixed("out"));
  m.def("sigmoid_mul", &py_sigmoid_mul, fixed("gate"), fixed("x"));
  m.def("gated_norm", &py_gated_norm, fixed("x"), fixed("gate"), fixed("weight"), "eps"_a,
        fixed("out"));
  m.def("softcap", &py_softcap, fixed("x"), "cap"_a);
  m.def("split_heads", &py_split_heads, fixed("qkv"), fixed("q"), fixed("keys").none(),
        fixed("values").none(), "base"_a, fixed("turn") = nb::none(), fixed("q_norm") = nb::none(),
        fixed("k_norm") = nb::none(), "norm_values"_a = false, "eps"_a = 0.0f,
        fixed("q_factor") = nb::none(), "values_of_keys"_a = false);
  m.def("fill_pass", &py_fill_pass, fixed("out"), "rows"_a, "paths"_a, "first"_a, "tokens"_a,
        "parents"_a, "vocab"_a, "keys"_a, "values"_a, "capacity"_a, "base"_a);

  m.def("dequantize", &py_dequantize, "type"_a, fixed("rows"), fixed("out"));
  m.attr("TILE") = kTile;
  nb::class_<QLinear>(m, "QLinear")
      .def("__init__", &make_qlinear<float>, fixed("weight"), "bias"_a = nb::none(), "bits"_a = 8)
      .def("__init__", &make_qlinear<uint16_t>, fixed("weight"), "bias"_a = nb::none(),
           "bits"_a = 8)
      .def(
          "forward",
          [](const QLinear& q, Array<const float, 2> x, Array<float, 2> out) {
            expect("x", x, {x.shape(0), size_t(q.in)});
            expect("out", out, {x.shape(0), size_t(q.out)});
            nb::gil_scoped_release unlocked;
            q.forward(x.data(), out.data(), int(x.shape(0)));
          },
          fixed("x"), fixed("out"))
      .def("forward_tiles", &py_forward_tiles, fixed("x"), fixed("out"), fixed("tiles"))
      .def_static("stored", &stored_qlinear, "parts"_a, "inputs"_a, "bias"_a = nb::none())
      .def("channels", &py_channels, fixed("channels"), fixed("out"))
      .def_prop_ro("shape", [](const QLinear& q) { return nb::make_tuple(q.out, q.in); })
      .def_prop_ro("nbytes", &QLinear::nbytes);
  m.def("route", &py_route, fixed("logits"), "normalise"_a, fixed("choice"), fixed("weights"),
        "sigmoid"_a = false, fixed("bias") = nb::none(), "scale"_a = 1.0f,
        fixed("expert_scales") = nb::none());
  m.def("run_experts", &py_run_experts, "gate_up"_a, "down"_a, fixed("x"), fixed("choice"),
        fixed("weights"), fixed("out"), "activation"_a = "silu", "alpha"_a = 0.0f,
        "limit"_a = 0.0f);
}
