"""Knowledge adapters for a model that is not trained (K-Adapter; Wang et al., 2021)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Generator, Tensor, nn

from plmctl.core.errors import DataError
from plmctl.core.parts import part_of
from plmctl.core.values import Count, DropoutRate
from plmctl.heads.features import Layers
from plmctl.nn.cells.base import check_heads
from plmctl.nn.starting import Starting
from plmctl.storage.parts.kinds import has_weights, read_kind

STD = 2e-4  # deviation of the maps into an adapter and out of it (microsoft/K-Adapter)


class LinearMap(nn.Module):
    """A linear map whose weights are given."""

    def __init__(self, columns: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(columns, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class NearZero(LinearMap, Starting):
    """A linear map that begins near 0: an adapter changes nothing before it has learned."""

    def start(self, generator: Generator) -> None:
        nn.init.normal_(self.linear.weight, std=STD, generator=generator)
        nn.init.zeros_(self.linear.bias)


class Adapter(nn.Module):
    """`o_k = i_k + up_k(encoder_k(down_k(i_k)))`, `i_k = h_k + o_{k-1}`, for the read layers h_k;
    the last o, [B, T, W].

    Each encoder has `depth` layers of a Transformer with a norm after every sum.
    """

    maps: type[LinearMap] = NearZero

    def __init__(
        self, *, width: int, reads: int, inner: int, depth: int, heads: int, dropout: float
    ) -> None:
        super().__init__()
        check_heads(heads, inner)
        self.down = nn.ModuleList(self.maps(width, inner) for _ in range(reads))
        self.up = nn.ModuleList(self.maps(inner, width) for _ in range(reads))
        self.encoders = nn.ModuleList(
            nn.ModuleList(
                nn.TransformerEncoderLayer(
                    inner, heads, 4 * inner, dropout, activation="gelu", batch_first=True
                )
                for _ in range(depth)
            )
            for _ in range(reads)
        )

    def forward(self, states: Sequence[Tensor], real: Tensor | None) -> Tensor:
        padding = None if real is None else ~real
        out = torch.zeros_like(states[0])
        for h, down, layers, up in zip(states, self.down, self.encoders, self.up, strict=True):
            entered = h + out
            x = down(entered)
            for layer in layers:  # type: ignore[attr-defined]
                x = layer(x, src_key_padding_mask=padding)
            out = entered + up(x)
        return out


class TrainedAdapter(Adapter, Starting):
    """An adapter whose first weights are those of a run."""

    maps = LinearMap

    def __init__(self, *, path: str, name: str, **sizes: float) -> None:
        super().__init__(**sizes)  # type: ignore[arg-type]
        self.path, self.name = path, name

    def start(self, generator: Generator) -> None:
        folder = _find_weights(Path(self.path).expanduser())
        found = _select(read_kind(folder), self.name, folder)
        own = self.state_dict()
        wrong = sorted(
            name for name in own.keys() | found.keys()
            if name not in own or name not in found or own[name].shape != found[name].shape
        )  # fmt: skip
        if wrong:
            what = f"the adapter there has other sizes or layers than this one: {wrong[0]}"
            fix = "heads.features.adapter_width=... and the like, as in that run"
            raise DataError(what, file=folder, fix=fix)
        self.load_state_dict(found)


@part_of("heads")
class KnowledgeAdapters(Layers):
    """`[linear_a([h_L; o_a]) for each adapter a]`, [B, T, n W]: the outputs of adapters on some
    layers of a model, joined to its last layer (Wang et al., 2021, arXiv:2002.01808, sec. 3.2).

    Adapters are trained on their own, one kind of knowledge each, while the model stays as it is
    (train.frozen=[backbone]); a further task reads several of them at once. Differs: padding is
    not read (released code: it is).

    Args:
        adapters: {name: the run or checkpoint that has trained it, or None: a new one}; empty: a
            new one called knowledge.
        layers: The layers that each adapter reads, 0 is the embedding output; None: 0, the middle,
            the last but one.
        adapter_width: columns inside of an adapter; None: those of the model.
        adapter_layers: The number of layers in each of its encoders.
        adapter_heads: The number of attention heads; None: one for 64 columns.
        dropout: inside of an adapter.
    """

    def __init__(
        self,
        *,
        width: int,
        num_layers: int,
        adapters: Mapping[str, str | None] = MappingProxyType({}),
        layers: Sequence[int] | None = None,
        adapter_width: Count | None = None,
        adapter_layers: Count = 2,
        adapter_heads: Count | None = None,
        dropout: DropoutRate = 0.1,
    ) -> None:
        chosen = sorted({0, num_layers // 2, num_layers - 1}) if layers is None else layers
        super().__init__(width=width, num_layers=num_layers, layers=chosen)
        adapters = adapters or {"knowledge": None}
        inner = adapter_width or width
        sizes = {
            "width": width,
            "reads": len(self.layers),
            "inner": inner,
            "depth": adapter_layers,
            "heads": adapter_heads or max(1, inner // 64),
            "dropout": dropout,
        }
        self.adapters = nn.ModuleDict(
            {
                name: Adapter(**sizes)  # type: ignore[arg-type]
                if path is None
                else TrainedAdapter(path=path, name=name, **sizes)
                for name, path in adapters.items()
            }
        )
        self.joins = nn.ModuleDict({name: nn.Linear(2 * width, width) for name in adapters})
        self.width = width * len(adapters)

    def forward(self, hidden: Sequence[Tensor], real: Tensor | None = None) -> Tensor:
        states = self.pick(hidden)
        joined = [
            self.joins[name](torch.cat([hidden[-1], adapter(states, real)], -1))
            for name, adapter in self.adapters.items()
        ]
        return torch.cat(joined, -1)


def _find_weights(folder: Path) -> Path:
    """The folder of a checkpoint, or of the newest one of a run."""
    if has_weights(folder):
        return folder
    steps = [place for place in folder.glob("checkpoints/step-*") if has_weights(place)]
    if not steps:
        fix = "a run that was fine-tuned with features=k_adapter, or one of its checkpoints"
        raise DataError("no checkpoint with an adapter here", file=folder, fix=fix)
    return max(steps, key=lambda place: int(place.name.rpartition("-")[2]))


def _select(tensors: Mapping[str, Tensor], name: str, file: Path) -> dict[str, Tensor]:
    """The tensors of the adapter of this name, or of the only one there."""
    prefix = "heads.features.adapters."
    names = sorted({key.split(".")[3] for key in tensors if key.startswith(prefix)})
    if name not in names and len(names) != 1:
        known = ", ".join(names) or "none"
        raise DataError(f"no adapter '{name}' there, but {known}", file=file)
    own = f"{prefix}{name if name in names else names[0]}."
    return {key.removeprefix(own): tensors[key] for key in tensors if key.startswith(own)}
