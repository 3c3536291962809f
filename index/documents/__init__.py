"""Documents that questions are asked about: parsed, chunked, searched."""
