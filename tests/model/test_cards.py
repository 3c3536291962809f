"""Cards that a model may run on, and what is said of those that it cannot."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch

from engine.config import Config
from engine.model.torch.cuda.static_forward import _fused
from engine.model.torch.cuda.weight_formats import FORMATS
from engine.model.torch.loading import _exact
from engine.model.torch.loading import load as load_model
from engine.model.torch.placement import choose_device
from engine.model.unsupported import UnsupportedModel
from tests.support.stub_card import list_cards

OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU "
    "driver by downloading and installing a new version from the URL: "
    "http://www.nvidia.com/Download/index.aspx Alternatively, go to: https://pytorch.org to "
    "install a PyTorch version that has been compiled with your version of the CUDA driver."
)
NONE = (
    "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed "
    "a driver from http://www.nvidia.com/Download/index.aspx"
)
ODD = "CUDA unknown error - this may be due to an incorrectly set up environment."


def broken_cuda(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """torch for CUDA where it finds no card, warns, and says why when it is asked to begin."""

    def is_available() -> bool:
        warnings.warn(f"CUDA initialization: {message}", stacklevel=2)
        return False

    def init() -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(torch.cuda, "is_available", is_available)
    monkeypatch.setattr(torch.cuda, "init", init)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            OLD,
            "The NVIDIA driver on your system is too old (found version 11040) and torch is made "
            "for CUDA 13.0: update the driver, install a torch for its CUDA",
        ),
        (NONE, "Found no NVIDIA driver on your system: see whether nvidia-smi lists a card"),
        (ODD, "CUDA unknown error - this may be due to an incorrectly set up environment"),
    ],
)
def test_why_no_card_can_be_used(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, message: str, said: str
) -> None:
    """A named card is refused in one line; `auto` takes the CPU, with a warning unless there is no
    driver at all. torch's own warning of many lines is not shown."""
    broken_cuda(monkeypatch, message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnsupportedModel) as caught:
            choose_device("cuda:1")
        assert choose_device("auto") == torch.device("cpu")
    assert str(caught.value).startswith(f"device cuda:1: {said}")
    assert str(caught.value).endswith(", or use --device cpu") and "\n" not in str(caught.value)
    lines = [one.getMessage() for one in caplog.records]
    assert len(lines) == (message is not NONE)
    assert all(said in line and line.endswith("the model runs on the CPU") for line in lines)


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0), (12, 1), (13, 0)])
def test_a_card_runs_what_torch_is_built_for(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, capability: tuple[int, int]
) -> None:
    """Also what is built for an older one of its series, or can be compiled for it."""
    list_cards(monkeypatch, capability=capability)
    assert choose_device("cuda") == choose_device("auto") == torch.device("cuda")
    assert not caplog.records


@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (10, 0)])
def test_a_card_that_torch_is_not_built_for(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, capability: tuple[int, int]
) -> None:
    """Its first kernel would fail."""
    list_cards(monkeypatch, capability=capability)
    major, minor = capability
    line = (
        rf"device cuda:1: Some Card \(cuda:1\) has compute capability {major}\.{minor}, for which "
        r"this torch is not built \(.*\): install one that is, or use --device cpu$"
    )
    with pytest.raises(UnsupportedModel, match=line):
        choose_device("cuda:1")
    assert choose_device("auto") == torch.device("cpu")
    assert "no card is used: Some Card has compute capability" in caplog.text


def test_a_card_without_memory_for_torch_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Or that another program has for itself."""

    def fail(card: torch.device) -> Any:
        raise RuntimeError("CUDA error: out of memory\nFor debugging consider passing ...")

    list_cards(monkeypatch)
    monkeypatch.setattr(torch.cuda, "mem_get_info", fail)
    line = (
        r"^device cuda: Some Card cannot be used \(CUDA error: out of memory\): end what else uses "
        "it, or use --device cpu$"
    )
    with pytest.raises(UnsupportedModel, match=line):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")
    assert "no card is used: Some Card cannot be used (CUDA error: out of memory)" in caplog.text


def test_an_older_card_has_torch_s_own_kernels_only(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """Triton's spill all registers of a card that does not multiply in bf16, or do not compile."""
    list_cards(monkeypatch, capability=(7, 5))
    card = choose_device("cuda")
    for options in ({"exact": True}, *({"dtype": name} for name in FORMATS)):
        (what,) = ("exact" if value is True else value for value in options.values())
        line = f"^{what} needs a card of compute capability 8.0 or newer: leave it out$"
        with pytest.raises(UnsupportedModel, match=line):
            load_model(tiny("llama"), Config(device="cuda", **options))
    assert not _exact(Config(), [card], ours=True)
    assert _fused(card) is None
    assert "this card is older than the fused kernels: kernels are launched one by" in caplog.text
    list_cards(monkeypatch, capability=(8, 0))
    assert _exact(Config(), [card], ours=True) and _fused(card) is not None


def test_cudnn_s_attention_is_off_on_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes a plan for every length of a cache."""
    list_cards(monkeypatch)
    torch.backends.cuda.enable_cudnn_sdp(True)
    choose_device("cpu")
    assert torch.backends.cuda.cudnn_sdp_enabled()
    for name in ("cuda", "cuda:1", "auto"):
        torch.backends.cuda.enable_cudnn_sdp(True)
        choose_device(name)
        assert not torch.backends.cuda.cudnn_sdp_enabled(), name
    torch.backends.cuda.enable_cudnn_sdp(True)


@pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for CUDA")
def test_a_torch_for_cpus_is_named(caplog: Any) -> None:
    with pytest.raises(UnsupportedModel, match="device cuda: this torch is built for CPUs only"):
        choose_device("cuda")
    assert choose_device("auto") == torch.device("cpu")
    assert not caplog.records


def test_a_mac_runs_the_model_on_its_cpu(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("auto") == torch.device("cpu")
    (line,) = (one.getMessage() for one in caplog.records)
    assert line == "Apple's GPU is left out, as nobody has tried it: the model runs on the CPU"
    assert choose_device("mps") == torch.device("mps")
    assert "nobody has tried Apple's GPU: if it fails, use --device cpu" in caplog.text
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UnsupportedModel, match="device mps: there is no Apple GPU here"):
        choose_device("mps")
