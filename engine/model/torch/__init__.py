"""Models on torch: loading, forward passes, the KV cache; `cuda` has what a card needs."""
