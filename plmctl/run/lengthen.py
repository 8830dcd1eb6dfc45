"""An encoder of short rows made to read long ones (Beltagy et al., 2020, arXiv:2004.05150, sec. 5):
its positions are copied again and again, it attends by a window with global tokens, and these have
copies of its projections.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plmctl.attention.patterns.base import Full
from plmctl.core.errors import ConfigError
from plmctl.core.locate import locate
from plmctl.models.encoder import Encoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.layout import parse
from plmctl.nn.positions import Learned

if TYPE_CHECKING:
    from plmctl.run.loading import Source

TABLE = "backbone.position.table.weight"
REACH = 256  # tokens to either side: the paper's window of 512
_CELL = "plmctl.nn.cells.global_attention.GlobalAttention"
_PATTERNS = "plmctl.attention.patterns"


def lengthen(source: Source, max_length: int, *, reach: int = REACH) -> Source:
    """`source` for rows of up to `max_length` tokens.

    Args:
        reach: Tokens that a token sees to either side. Where the window covers a row of the old
            length, the states are what they were.

    Raises:
        ConfigError: It is no encoder with learned positions and full attention, or reads rows as
            long already.
    """
    _check_kind(source)
    known = len(source.tensors[TABLE])
    if max_length <= known:
        allowed = f"more than {known}, the positions that {source.folder} has learned"
        raise ConfigError("--max-length", max_length, allowed, fix=f"--max-length {8 * known}")
    config, tensors = copy.deepcopy(source.config), dict(source.tensors)
    config["position"]["max_length"] = max_length
    config["pattern"] = {  # conf/pattern/longformer.yaml
        "_target_": f"{_PATTERNS}.base.Or",
        "parts": [
            {"_target_": f"{_PATTERNS}.window.Window", "reach": reach},
            {"_target_": f"{_PATTERNS}.global_tokens.Global", "tokens": 1},
        ],
    }
    tensors[TABLE] = tensors[TABLE][torch.arange(max_length) % known]
    cells = config["model"]["stack"]["cells"]
    for letter in _attention_letters(source):
        cells[letter] = _make_global(cells[letter], path=f"model.stack.cells.{letter}")
        tensors |= _copy_projections(tensors, letter)
    return replace(source, config=config, tensors=tensors)


def _check_kind(source: Source) -> None:
    """ConfigError for a model that is made long otherwise, or needs not be."""
    config = source.config
    model, position, pattern = (
        locate(config[name]["_target_"], source.plugins)
        for name in ("model", "position", "pattern")
    )
    if model is not Encoder or pattern is not Full:
        kind = f"{model.__name__} with the pattern {pattern.__name__}"
        allowed = "an Encoder with the pattern Full, such as BERT, RoBERTa, ALBERT and ELECTRA"
        raise ConfigError("model", kind, f"{allowed}: only these are made long")
    if position is not Learned:
        bound = config["position"].get("max_length")
        allowed = (
            "learned positions; there are none here, so nothing needs copying"
            if bound is None
            else "learned positions in one table"
        )
        fix = f"plmctl pretrain <recipe> init={source.folder} pattern=longformer"
        raise ConfigError("position", position.__name__, allowed, fix="" if bound else fix)
    if not list(_attention_letters(source)):
        layout = config["model"]["stack"]["layout"]
        raise ConfigError("model.stack.layout", layout, "at least one cell of Attention")


def _attention_letters(source: Source) -> Iterator[str]:
    """The letters of the layout whose cells are `Attention`."""
    stack = source.config["model"]["stack"]
    for letter in dict.fromkeys(step.letter for step in parse(stack["layout"])):
        if locate(stack["cells"][letter]["_target_"], source.plugins) is Attention:
            yield letter


def _make_global(node: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """The node of an attention cell with projections of their own for global tokens."""
    projections = node.get("projections", "own")
    if projections != "own":
        allowed = "own: only such a cell has projections to copy for global tokens"
        raise ConfigError(f"{path}.projections", projections, allowed)
    kept = {name: value for name, value in node.items() if name != "projections"}
    return {**kept, "_target_": _CELL}


def _copy_projections(tensors: Mapping[str, Tensor], letter: str) -> dict[str, Tensor]:
    """The tensors of `global_maps` in all cells of this letter."""
    made: dict[str, Tensor] = {}
    name_of = re.compile(rf"(backbone\.stack\.blocks\.{letter}\.\d+\.cell)\.qkv\.(weight|bias)")
    for name, tensor in tensors.items():
        if match := name_of.fullmatch(name):
            cell, part = match.groups()
            q, kv = tensor.split([len(tensor) // 3, len(tensor) - len(tensor) // 3])
            made |= {
                f"{cell}.global_maps.q.{part}": q.clone(),
                f"{cell}.global_maps.kv.{part}": kv.clone(),
            }
    return made
