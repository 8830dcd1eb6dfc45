"""A tiny set of parts, a config folder and a plugin module: tests of the config machinery do not
need the real parts.
"""

from __future__ import annotations

from pathlib import Path

PLUGIN = "plmctl_probe"
SOURCE = """
from plmctl.core.parts import part_of
from plmctl.objectives.base import Facts
@part_of("format")
class Format:
    provides = frozenset({"text", "tracks.segment"})
    def __init__(self, *, max_length: int, path: str | None = None) -> None: ...
@part_of("noise")
class Mask:
    reads, writes = frozenset({"text"}), frozenset({"targets.mlm"})
    def __init__(self, *, rate: float, vocab: object = None) -> None: self.rate = rate
@part_of("noise")
class Drop:
    reads, writes = frozenset({"text"}), frozenset()
    def __init__(self, *, rate: float, share: float = 0.5) -> None: ...
@part_of("noise")
class Swap:
    reads, writes = frozenset({"text", "tracks.word_start"}), frozenset()
    def __init__(self, *, pairs: int) -> None: ...
@part_of("tokenizer")
class Tokens:
    def __init__(self, *, kind: str, vocab_size: int, path: str | None = None) -> None: ...
@part_of("pattern")
class Pattern:
    needs = frozenset()
@part_of("position")
class Position: ...
@part_of("model")
class Model:
    def __init__(self, *, width: int, layout: str = "af*2") -> None: ...
@part_of("objective")
class Ask:
    facts = Facts(needs=frozenset({"targets.mlm"}), heads=frozenset({"ask"}))
    def __init__(self, *, sharp: bool = False) -> None: ...
@part_of("heads")
class Head:
    def __init__(self, *, tied: bool, width: int) -> None: ...
@part_of("optim")
class Adam:
    def __init__(self, *, lr: float, betas: list[float] | None = None) -> None: ...
@part_of("optim")
class Muon:
    def __init__(self, *, lr: float, momentum: float = 0.9) -> None: ...
@part_of("schedule")
class Linear:
    def __init__(self, *, warmup_steps: int = 0) -> None: ...
@part_of("task")
class Task:
    def __init__(self, *, path: str) -> None: ...
"""


def part(name: str, **numbers: object) -> str:
    return "# one line\n" + "".join(
        f"{key}: {value}\n" for key, value in {"_target_": f"{PLUGIN}.{name}", **numbers}.items()
    )


def objective(name: str) -> str:
    return (
        f"# @package _global_\n# asks {name}\nobjective: {{{name}: {{_target_: {PLUGIN}.Ask,"
        f" weight: 1.0}}}}\nheads: {{{name}: {{_target_: {PLUGIN}.Head, tied: true}}}}\n"
    )


PARTS = {
    "tokenizer/unigram.yaml": part("Tokens", kind="unigram", vocab_size=100, path="null"),
    "format/blocks.yaml": part("Format", max_length=32),
    "noise/token_mask.yaml": "# @package noise.token_mask\n" + part("Mask", rate=0.15),
    "noise/drop.yaml": "# @package noise.drop\n" + part("Drop", rate=0.1),
    "noise/swap.yaml": "# @package noise.swap\n" + part("Swap", pairs=3),
    "size/mini.yaml": "num_layers: 4\nwidth: 256\nnum_heads: 4\ninner_width: 1024\n",
    "size/tiny.yaml": "num_layers: 2\nwidth: 128\nnum_heads: 2\ninner_width: 512\n",
    "pattern/full.yaml": part("Pattern"),
    "position/learned.yaml": part("Position"),
    "model/encoder.yaml": part("Model", width="${size.width}"),
    "objective/mlm.yaml": objective("mlm"),
    "objective/nsp.yaml": objective("nsp"),
    "optim/adamw.yaml": part("Adam", lr=1e-4),
    "optim/muon.yaml": part("Muon", lr=1e-2),
    "schedule/linear.yaml": part("Linear"),
    "task/cola.yaml": part("Task", path="???"),
    "recipes/probe.yaml": (
        "# @package _global_\n# a probe (Nobody, 2026)\ndefaults: [{override /objective: [mlm,"
        " nsp]}, {override /size: tiny}]\ntrain: {steps: 100, batch_size: 7}\nnoise: {token_mask:"
        " {rate: 0.2}}\noptim: {lr: 3.0e-4, betas: [0.9, 0.98]}\nheads: {nsp: {tied:"
        " false}}\nschedule: {warmup_steps: 5}\nseed: 11\n"
    ),
}


def write(folder: Path) -> str:
    """Write the parts into `folder`/conf and the plugin beside it; the config folder."""
    for name, text in PARTS.items():
        file = folder / "conf" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (folder / f"{PLUGIN}.py").write_text(SOURCE, encoding="utf-8")
    return str(folder / "conf")
