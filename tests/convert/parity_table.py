"""The largest differences from `transformers` over all published classes, as a Markdown table.

    python tests/convert/parity_table.py

Random weights, norms and biases perturbed, rows with and without padding, E = H and E < H where a family has both.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import test_electra
import test_families
import torch
from conftest import publish
from torch import Tensor

import plmctl

ROWS = ([9, 9], [9, 4, 1])  # lengths: without padding, with padding
Outputs = dict[str, Tensor]


def of_family(name: str, model: object, loaded: plmctl.Loaded, ids: Tensor, mask: Tensor) -> tuple[Outputs, Outputs]:
    return test_families.ours(loaded, test_families.batch(ids, mask)), test_families.theirs(model, ids, mask)


def of_electra(name: str, model: object, loaded: plmctl.Loaded, ids: Tensor, mask: Tensor) -> tuple[Outputs, Outputs]:
    head = test_electra.CLASSES[name]
    kind = "hidden" if head is None else head
    return {kind: test_electra.ours(loaded.model, head, ids, mask)}, {kind: test_electra.theirs(model, ids, mask)}


def differences(name: str, dtype: torch.dtype, **changes: int) -> tuple[float | None, float | None]:
    """The largest (of states, of logits) over real tokens."""
    compare = of_electra if name in test_electra.CLASSES else of_family
    worst: dict[bool, float | None] = {True: None, False: None}  # None: the class has no such output
    with tempfile.TemporaryDirectory() as place:
        labels = 2 if "Question" in name else test_families.labels(name)
        model, folder = publish(Path(place), name, num_labels=labels, pad_token_id=1, **changes)
        loaded = plmctl.load(folder)
        loaded.model.to(dtype), model.to(dtype)
        for length in ROWS:
            ids, mask = test_families.inputs(length)
            found, wanted = compare(name, model, loaded, ids, mask)
            for key, value in wanted.items():
                gap = (found[key] - value).abs()
                gap = gap[mask] if gap.shape[:2] == mask.shape else gap
                states = key.startswith("hidden")
                worst[states] = max(worst[states] or 0.0, float(gap.max()))
    return worst[True], worst[False]


def main() -> None:
    print("| class | states fp32 | logits fp32 | states fp64 | logits fp64 |\n|---|---|---|---|---|")
    members = [(name, {}) for name in test_families.CLASSES]
    members += [(name, {"embedding_size": size}) for name in test_electra.CLASSES for size in (8, 16)]
    for name, changes in members:
        cells = [gap for dtype in (torch.float32, torch.float64) for gap in differences(name, dtype, **changes)]
        width = f" (E = {changes['embedding_size']}, H = 16)" if changes else ""
        print(f"| {name}{width} | " + " | ".join("" if gap is None else f"{gap:.1e}" for gap in cells) + " |", flush=True)


if __name__ == "__main__":
    main()
