"""Experiments with speculative decoding, and the training of drafters (`train`)."""
