"""Running tiny models on one thread."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """More threads would only wait for each other: the models are tiny and the machine is busy."""
    before, set_threads = torch.get_num_threads(), torch.set_num_threads
    set_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda count: set_threads(1))
        yield
    set_threads(before)
