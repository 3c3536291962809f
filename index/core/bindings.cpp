#include <nanobind/nanobind.h>
NB_MODULE(_core, m) { (void)m; }
