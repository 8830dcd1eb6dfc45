"""A prompt or a prefix in the layout of the library `peft`: one table of vectors, and its sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plmctl.core.errors import UsageError
from plmctl.models.base import Model
from plmctl.models.capabilities import find_prompt_reader
from plmctl.nn.cells.base import Prefixed
from plmctl.nn.peft.base import find_cells
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.prompt import PromptTuning

# the name of the method in peft, tensors by their names, and the entries of adapter_config.json
Learned = tuple[str, dict[str, Tensor], dict[str, Any]]
VECTORS = "prompt_embeddings"
ALONE = "use it as it is: plmctl eval, embed, generate"


@torch.no_grad()
def write_vectors(model: Model, method: PromptTuning | PrefixTuning, *, of_rows: bool) -> Learned:
    """The learned vectors: a prompt as the model adds it to token vectors, [P, W]; a prefix as keys
    and values of all layers side by side, [P, layers 2 W], whether a network makes them or not.

    Args:
        of_rows: Whether the published model classifies rows or tokens, which `peft` reads at other
            positions.

    Raises:
        UsageError: `peft` computes something else there.
    """
    if of_rows:
        what = "peft's classifier reads the first vector before the text, and ours the text"
        raise UsageError(f"{what}\n  fix: {ALONE}")
    cells = [cell for cell in find_cells(model.backbone) if isinstance(cell, Prefixed)]
    settings = {
        "num_virtual_tokens": method.length,
        "num_transformer_submodules": 1,
        "num_attention_heads": cells[0].num_heads,
        "num_layers": len(cells),
        "token_dim": model.backbone.width,
    }
    if isinstance(method, PromptTuning):
        reader = find_prompt_reader(model.backbone)
        vectors = reader.prompt.vectors * reader.embedding.factor
        return "PROMPT_TUNING", {VECTORS: vectors.detach().contiguous()}, settings
    if not method.shift:
        what = "peft counts the positions of a text behind its prefix, and this run from 0"
        raise UsageError(f"{what}\n  fix: train it with peft.prefix.shift=true, or {ALONE}")
    made = [prefix() for cell in cells if (prefix := cell.find_prefix()) is not None]
    rows = [
        torch.cat([side.transpose(0, 1).flatten(1) for side in (each.keys, each.values)], 1)
        for each in made
    ]  # [H, P, D] twice -> [P, 2 W]
    settings |= {"prefix_projection": False, "encoder_hidden_size": model.backbone.width}
    return "PREFIX_TUNING", {VECTORS: torch.cat(rows, 1).detach().contiguous()}, settings
