"""Experiments beside the product: two-model decoding and training of heads."""
