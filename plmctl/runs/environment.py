"""`plmctl env`: what one pastes into an issue; torch is not imported for it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import plmctl
from plmctl.core.extras import EXTRAS, find_version, install_command
from plmctl.core.machine import (
    BF16_ON_CARD,
    count_processors,
    cpu_multiplies_bf16,
    describe_cpu,
    find_cards,
    find_cuda_of_torch,
)
from plmctl.core.terminal import print_table, tell
from plmctl.storage.paths import find_cache_folder

LIBRARIES = ("torch", "numpy", "hydra-core", "typer", "tokenizers", "sentencepiece", "safetensors")
DECIDING = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PLMCTL_CACHE", "WNSEARCHDIR")


def show_environment(*, as_json: bool) -> None:
    """Print what plmctl runs on, for people or as JSON."""
    found = describe_environment()
    if as_json:
        tell(json.dumps(found, indent=1))
        return
    extras = found.pop("extras")
    for name, value in found.items():
        tell(f"{name}: {_spell(value)}")
    tell("")
    rows = [
        [name, ", ".join(f"{n} {v or 'absent'}" for n, v in each["libraries"].items()), each["for"]]
        for name, each in extras.items()
    ]
    print_table(["extra", "libraries", "for"], rows)
    absent = [name for name, each in extras.items() if not all(each["libraries"].values())]
    if absent:
        tell(f"to install one: {install_command(absent[0])}")


def describe_environment() -> dict[str, Any]:
    """Versions, devices, threads, precision, folders, and which extras are installed."""
    cards, cuda = find_cards(), find_cuda_of_torch()
    threads = os.environ.get("OMP_NUM_THREADS")
    return {
        "plmctl": plmctl.__version__,
        "at": str(Path(plmctl.__file__).parent),
        "Python": f"{platform.python_version()}, {sys.executable}",
        "system": platform.platform(),
        "libraries": {name: find_version(name) for name in LIBRARIES},
        "CUDA of torch": cuda or "none",
        "cards": [
            f"{card.name}, {card.bytes / 2**30:.0f} GiB, compute capability"
            f" {card.capability[0]}.{card.capability[1]}"
            for card in cards
        ],
        "processor": describe_cpu(),
        "cores": count_processors(),
        "threads": f"{threads} (OMP_NUM_THREADS)" if threads else "as torch takes them",
        "precision": choose_precision(),
        "cache": str(find_cache_folder()),
        "variables": {name: os.environ[name] for name in DECIDING if name in os.environ},
        "extras": {
            name: {"libraries": {n: find_version(n) for n in extra.libraries}, "for": extra.purpose}
            for name, extra in EXTRAS.items()
        },
    }


def choose_precision() -> str:
    """The precision that `train.precision=auto` takes here, by what the hardware multiplies."""
    cards = find_cards() if find_cuda_of_torch() else []
    if cards:
        return "bf16" if cards[0].capability[0] >= BF16_ON_CARD else "fp16"
    return "bf16" if cpu_multiplies_bf16() else "fp32"


def _spell(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner or 'absent'}" for name, inner in value.items()) or "none"
    return "; ".join(value) or "none" if isinstance(value, list) else str(value)
