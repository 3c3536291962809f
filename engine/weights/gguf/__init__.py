"""GGUF files: their metadata, tensors, tokenizers and chat templates."""
