// The products of QLinear on another architecture, for test_kernels_on_arm.py: reads a problem from
// stdin and writes the rows of y for every instruction set that the processor has.
//
// stdin: int32 type, out, in, rows, bytes of a row; weights; x as f32. stdout: for each set its
// name, a line end, y as f32.
#include <cstdio>
#include <stdexcept>
#include <vector>

#include "../../engine/model/core/cpu.hpp"
#include "../../engine/model/core/qlinear.hpp"

using namespace draftline;

int main() {
  int32_t head[5];
  if (std::fread(head, sizeof head, 1, stdin) != 1) return 1;
  const int type = head[0], out = head[1], in = head[2], rows = head[3], bytes = head[4];
  std::vector<uint8_t> weights(size_t(out) * bytes);
  std::vector<float> x(size_t(rows) * in), y(size_t(rows) * out);
  if (std::fread(weights.data(), weights.size(), 1, stdin) != 1) return 1;
  if (std::fread(x.data(), 4 * x.size(), 1, stdin) != 1) return 1;
  const QLinear linear({{Format(type), weights.data(), out}}, nullptr, in);
  for (const char* name : {"plain", "dotprod", "i8mm"}) {
    try {
      set_isa(name);
    } catch (const std::invalid_argument&) {
      continue;
    }
    std::printf("%s\n", name);
    linear.forward(x.data(), y.data(), rows);
    std::fwrite(y.data(), 4, y.size(), stdout);
  }
}
