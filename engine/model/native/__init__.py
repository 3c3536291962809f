"""Described models on the CPU: native kernels on plain arrays."""
