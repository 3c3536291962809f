"""What static passes and CUDA graphs ask of torch.cuda, for tests on a machine without a card: the
current device, streams to wait for, and pools of graphs with torch's own rule for their end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import pytest
import torch


class StubStream:
    """A stream that counts how often it was waited for."""

    made: list[StubStream]  # in the order of their making

    def __init__(self, device: Any = None) -> None:
        self.device, self.waits = device, 0
        self.made.append(self)

    def synchronize(self) -> None:
        self.waits += 1

    def wait_stream(self, other: StubStream) -> None:
        """Nothing runs at the same time here."""


class StubGraph:
    """A captured graph; replaying it does nothing."""

    def replay(self) -> None:
        """The outputs stay those of the capture."""


class StubCard:
    """Cards without memory or kernels; tensors stay on the CPU."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current = 0  # the current device
        self.entered = 0  # contexts of a device that were entered
        StubStream.made = []
        self.main = StubStream()  # every device's current stream
        self.pools: dict[int, WeakSet[StubGraph]] = {}  # the living graphs of each
        for name, stub in (
            ("device", self.device),
            ("current_device", lambda: self.current),
            ("Stream", StubStream),
            ("stream", self.on_stream),
            ("current_stream", lambda device=None: self.main),
            ("set_stream", lambda stream: None),
            ("synchronize", lambda device=None: None),
            ("graph_pool_handle", lambda: len(self.pools)),
            ("CUDAGraph", StubGraph),
            ("graph", self.capture),
        ):
            patch.setattr(torch.cuda, name, stub)

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.entered += 1
        before, self.current = self.current, device.index or 0
        yield
        self.current = before

    @contextmanager
    def on_stream(self, stream: StubStream) -> Iterator[None]:
        yield

    @contextmanager
    def capture(
        self, graph: StubGraph, pool: int, stream: StubStream, capture_error_mode: str
    ) -> Iterator[None]:
        if pool in self.pools and not self.pools[pool]:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        yield
        self.pools.setdefault(pool, WeakSet()).add(graph)


def list_cards(
    patch: pytest.MonkeyPatch, free: int = 24 * 10**9, capability: tuple[int, int] = (9, 0)
) -> None:
    """Let torch, built for capabilities 7.5 to 12.0, list two cards with so many free bytes."""
    for name, value in (
        ("is_available", True), ("device_count", 2), ("get_device_name", "Some Card"),
        ("get_device_capability", capability), ("mem_get_info", (free, 24 * 10**9)),
        ("get_arch_list", ["sm_75", "sm_80", "sm_86", "sm_90a", "sm_120", "compute_120"]),
    ):  # fmt: skip
        patch.setattr(torch.cuda, name, lambda *_, value=value: value)


@pytest.fixture
def stub_card(monkeypatch: pytest.MonkeyPatch) -> StubCard:
    return StubCard(monkeypatch)
