"""Forward passes of static shape for CUDA graphs."""
