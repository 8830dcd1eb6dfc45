"""The largest differences from `transformers` over all published classes, as a Markdown table.

    python -m tests.interop.parity_table

Random weights, norms and biases perturbed, rows with and without padding, E = H and E < H where a
family has both.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import plmctl
from tests.interop import test_electra, test_encoder_decoders, test_families
from tests.interop.publishing import publish

TYPES = (torch.float32, torch.float64)
ROWS = ([9, 9], [9, 4, 1])  # lengths: without padding, with padding
Outputs = dict[str, Tensor]


def of_family(
    name: str, model: object, loaded: plmctl.Loaded, ids: Tensor, mask: Tensor
) -> tuple[Outputs, Outputs]:
    return test_families.ours(loaded, test_families.batch(ids, mask)), test_families.theirs(
        model, ids, mask
    )


def of_electra(
    name: str, model: object, loaded: plmctl.Loaded, ids: Tensor, mask: Tensor
) -> tuple[Outputs, Outputs]:
    head = test_electra.CLASSES[name]
    kind = "hidden" if head is None else head
    return {kind: test_electra.ours(loaded.model, head, ids, mask)}, {
        kind: test_electra.theirs(model, ids, mask)
    }


def differences(name: str, dtype: torch.dtype, **changes: int) -> tuple[float | None, float | None]:
    """The largest (of states, of logits) over real tokens."""
    compare = of_electra if name in test_electra.CLASSES else of_family
    # None: the class has no such output
    worst: dict[bool, float | None] = {True: None, False: None}
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


def of_ends(name: str, dtype: torch.dtype, **changes: Any) -> tuple[float | None, float | None]:
    """The same for encoder-decoders, over both stacks; T5 of `transformers` with softmax and
    norm in the model's own type.
    """
    worst = {True: 0.0, False: 0.0}
    with tempfile.TemporaryDirectory() as place:
        model, folder = publish(Path(place), name, **changes)
        loaded = plmctl.load(folder)
        loaded.model.to(dtype), model.to(dtype)
        if dtype == torch.float64:
            test_encoder_decoders.same_sinusoids(loaded, model)
        for lengths in test_encoder_decoders.ENDS.values():
            batch = test_encoder_decoders.inputs(*lengths)
            found = test_encoder_decoders.ours(loaded, batch)
            with (
                test_encoder_decoders.Double()
                if dtype == torch.float64
                else contextlib.nullcontext()
            ):
                wanted = test_encoder_decoders.theirs(model, batch)
            for key, value in wanted.items():
                real = batch.seqs["source" if key.startswith("source") else "target"].real
                states = key.startswith(("hidden", "source"))
                worst[states] = max(worst[states], float((found[key] - value)[real].abs().max()))
    return worst[True], worst[False] if loaded.model.heads else None


def of_rows(name: str, dtype: torch.dtype) -> float:
    """The same of an encoder-decoder's classifier."""
    with tempfile.TemporaryDirectory() as place:
        model, folder = publish(Path(place), name, num_labels=3)
        loaded = plmctl.load(folder)
        loaded.model.to(dtype)
        found, wanted = test_encoder_decoders.classified(loaded, model.to(dtype))
        return float((found - wanted).abs().max())


def main() -> None:
    print(
        "| class | states fp32 | logits fp32 | states fp64 | logits fp64 |\n|---|---|---|---|---|"
    )
    members = [(name, {}) for name in test_families.CLASSES]
    members += [
        (name, {"embedding_size": size}) for name in test_electra.CLASSES for size in (8, 16)
    ]
    for name, changes in members:
        width = f" (E = {changes['embedding_size']}, H = 16)" if changes else ""
        show(name + width, [gap for dtype in TYPES for gap in differences(name, dtype, **changes)])
    for name, changed in test_encoder_decoders.MEMBERS.values():
        told = (
            f" ({', '.join(f'{key}={value}' for key, value in changed.items())})" if changed else ""
        )
        show(name + told, [gap for dtype in TYPES for gap in of_ends(name, dtype, **changed)])
    name = "BartForSequenceClassification"
    show(name, [gap for dtype in TYPES for gap in (None, of_rows(name, dtype))])


def show(name: str, cells: list[float | None]) -> None:
    print(
        f"| {name} | " + " | ".join("" if gap is None else f"{gap:.1e}" for gap in cells) + " |",
        flush=True,
    )


if __name__ == "__main__":
    main()
