"""`plmctl env`: what stands in it is what torch and pyproject.toml say."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch

import plmctl
from plmctl.core import machine
from plmctl.core.extras import EXTRAS
from plmctl.runs import environment
from plmctl.training.device.precision import choose
from tests.command import plmctl as command

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
FOR_US = {"test", "bench", "docs"}  # extras of those who change plmctl


def test_every_extra_of_users_is_listed() -> None:
    stated = PROJECT["project"]["optional-dependencies"]
    names = {
        extra: tuple(re.split(r"[<>=\[]", line)[0] for line in lines)
        for extra, lines in stated.items()
        if extra not in FOR_US
    }
    assert {name: extra.libraries for name, extra in EXTRAS.items()} == names
    assert all(extra.purpose for extra in EXTRAS.values())


def test_it_says_what_torch_says() -> None:
    found = json.loads(command("env", "--json"))
    assert found["libraries"]["torch"] == metadata.version("torch")
    assert found["plmctl"] == plmctl.__version__
    assert found["CUDA of torch"] == (torch.version.cuda or "none")
    assert machine.cpu_multiplies_bf16() == (choose("auto", torch.device("cpu")).name == "bf16")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert found["precision"] == choose("auto", device).name
    cards = machine.find_cards() if torch.version.cuda else []
    names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    assert [card.name for card in cards] == names


def test_people_read_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    card = machine.Card("NVIDIA T4", (7, 5), 16 << 30)
    monkeypatch.setattr(environment, "find_cards", lambda: [card])
    monkeypatch.setattr(environment, "find_cuda_of_torch", lambda: "12.8")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    shown = command("env")
    for line in (
        f"plmctl: {plmctl.__version__}",
        "cards: NVIDIA T4, 16 GiB, compute capability 7.5",
        "precision: fp16",
        "threads: 3 (OMP_NUM_THREADS)",
    ):
        assert f"{line}\n" in shown
    assert all(name in shown for name in EXTRAS)
