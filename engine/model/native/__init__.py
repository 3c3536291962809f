"""Models by their `ModelConfig` on the CPU: native kernels on plain arrays."""
