"""The inputs of passes of static shape that read prompts.

Such a pass has no draft and no head: row i follows row i - 1, and only hidden states are wanted.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.model.torch.cuda.static_pass import HEADER_INTS, MAX_ROWS, write_other_addresses

READ_ROWS = (64, 128, 256, 512, 1024)  # rows of a pass that reads a prompt
MOST_PADDED = 512  # rows; wider passes, whose products take long, are not padded


class PromptInputs:
    """The buffer of one model's prompts, on its device and in pinned memory."""

    def __init__(self, device: torch.device, exact: bool) -> None:
        """Allocate the buffers. An exact pass over more than MAX_ROWS rows would be slow."""
        self.sizes = [size for size in READ_ROWS if size <= MAX_ROWS or not exact]
        size = HEADER_INTS + 2 * self.sizes[-1]
        self.box = torch.zeros(size, dtype=torch.int64, device=device)
        self.ids, self.positions = self.box[HEADER_INTS:].view(2, -1)
        self._host = torch.zeros(size, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._inputs = self._host.numpy()  # the same memory
        self._ids_here, self._positions_here = self._inputs[HEADER_INTS:].reshape(2, -1)

    def rows_for(self, count: int) -> int:
        """Find the rows of the narrowest pass that holds `count` tokens, or of the widest one."""
        return next((size for size in self.sizes if size >= count), self.sizes[-1])

    def chunk_of(self, count: int) -> int:
        """Choose how many tokens the next pass takes of a prompt with `count` tokens to read."""
        padded = self.rows_for(count)
        if padded <= MOST_PADDED:
            return padded
        return max(size for size in self.sizes if size <= count)

    def send(self, tokens: list[int], cache: tuple[Tensor, ...], base: int, rows: int) -> None:
        """Send the inputs of a pass, padded to `rows` rows: further ones have the last position."""
        count, keys = len(tokens), cache[0].data_ptr()
        values, capacity = keys + cache[0].nbytes // 2, cache[0].shape[3]
        self._inputs[:5] = keys, values, capacity, base, count
        write_other_addresses(self._inputs, cache)
        self._ids_here[:count], self._ids_here[count:rows] = tokens, 0
        self._positions_here[:rows] = base + np.minimum(np.arange(rows), count - 1)
        self.box.copy_(self._host, non_blocking=True)
