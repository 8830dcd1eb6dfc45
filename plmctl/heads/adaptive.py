"""The adaptive softmax: frequent tokens first, then clusters of rare ones (Grave et al., 2017)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.heads.base import About, Head, widen
from plmctl.heads.table_loss import cross_entropy_of_table
from plmctl.nn.adaptive import AdaptiveTable, Projection
from plmctl.nn.tables import Padded, with_spare

_EULER = 0.5772156649015329


class ClusterBias(Padded):
    """One number for each token of a cluster."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.vocab_size = size
        self.weight = nn.Parameter(with_spare(torch.zeros(size)))


@part_of("heads")
class AdaptiveSoftmax(Head):
    """`log p(v) = log p(first choice) + log p(v | cluster)`: the first choice is among the tokens
    of cluster 0 and one class for each other cluster (Grave et al., 2017, arXiv:1609.04309, sec.
    4; Dai et al., 2019, arXiv:1901.02860, released code).

    The logits of cluster i are `(h P_i) table_i^T + b_i`; the classes of the clusters are in the
    order of the clusters, with vectors as wide as those of cluster 0. Only the clusters that hold
    a label are computed for it. `tied` takes the tables of an `AdaptiveTable` and stores nothing;
    `tie_projs` does so with its projections, by a list one for each cluster (WikiText-103: the
    first one is not tied). Otherwise `cutoffs`, `div_val`, `table_width`, `proj_same_dim` are as
    in `AdaptiveTable`, null: as in the embedding. Logits over the vocabulary are log-probabilities.
    """

    about: About = "next"

    def __init__(
        self,
        *,
        width: int,
        vocab_size: int,
        token_embedding: nn.Module | None,
        tied: bool = True,
        tie_projs: bool | Sequence[bool] = True,
        cutoffs: Sequence[Count] | None = None,
        div_val: Count | None = None,
        table_width: Count | None = None,
        proj_same_dim: bool | None = None,
        bias: bool = True,
        about: Literal["text", "next"] = "next",
        chunk: int = 1 << 26,
    ) -> None:
        super().__init__()
        self.about, self.vocab_size, self.chunk = about, vocab_size, chunk
        like = token_embedding if isinstance(token_embedding, AdaptiveTable) else None
        own = {
            "cutoffs": None if cutoffs is None else list(cutoffs),
            "div_val": div_val,
            "table_width": table_width,
            "proj_same_dim": proj_same_dim,
        }
        if tied:
            _check_tied(like, own)
        elif cutoffs is None and like is None:
            allowed = "ids at which clusters begin: the embedding has none"
            raise ConfigError("cutoffs", None, allowed, fix="cutoffs=[2000,8000]")
        settings = {
            name: getattr(like, name, None) if value is None else value
            for name, value in own.items()
        }
        self._tied: tuple[AdaptiveTable, ...] = (like,) if tied and like is not None else ()
        self.own = (
            None
            if tied
            else AdaptiveTable(
                vocab_size=vocab_size,
                width=width,
                cutoffs=cast(Sequence[int], settings["cutoffs"]),
                div_val=cast(int, settings["div_val"] or 1),
                table_width=cast(int, settings["table_width"] or width),
                proj_same_dim=bool(settings["proj_same_dim"]),
            )
        )
        table, ties = self.table, _spread_ties(tie_projs, len(self.table.sizes))
        self.projections = nn.ModuleDict(
            {
                str(cluster): Projection(table.widths[cluster], width)
                for cluster, shared in enumerate(ties)
                if tied and not shared and table.is_projected(cluster)
            }
        )
        rare = len(table.sizes) - 1
        self.cluster_weight = nn.Parameter(torch.empty(rare, table.widths[0]).normal_(std=0.02))
        self.cluster_bias = nn.Parameter(torch.zeros(rare)) if bias else None
        self.biases = nn.ModuleList(map(ClusterBias, table.sizes)) if bias else None

    @property
    def table(self) -> AdaptiveTable:
        """The output embedding."""
        return self._tied[0] if self.own is None else self.own

    def forward(self, features: Tensor) -> Tensor:
        """[..., W] -> [..., V] the log-probabilities of all tokens."""
        common = self.table.sizes[0]
        first = widen(self._compute_logits(features, 0)).log_softmax(-1)
        parts = [first[..., :common]]
        for cluster in range(1, len(self.table.sizes)):
            column = common + cluster - 1
            inside = widen(self._compute_logits(features, cluster)).log_softmax(-1)
            parts.append(first[..., column : column + 1] + inside)
        return torch.cat(parts, -1)

    def loss(self, features: Tensor, ids: Tensor) -> tuple[Tensor, None]:
        """features [P, W], ids [P] -> (summed cross-entropy in fp32 without IGNORE, None: guesses
        are not compared with all tokens).
        """
        cluster, label = self._place(ids)
        total = self._loss_of(features, label, 0)
        for rare in range(1, len(self.table.sizes)):
            chosen = (cluster == rare).nonzero()[:, 0]  # none at all: gradients are zeros
            total = total + self._loss_of(features[chosen], ids[chosen] - self._begin(rare), rare)
        return total, None

    def token_losses(self, features: Tensor, ids: Tensor) -> Tensor:
        """features [P, W], ids [P] -> [P] the negative log-likelihood of each label in fp32, in
        the order of the labels; 0 for IGNORE.
        """
        cluster, label = self._place(ids)
        first = widen(self._compute_logits(features, 0))
        losses = F.cross_entropy(first, label, ignore_index=IGNORE, reduction="none")
        for rare in range(1, len(self.table.sizes)):
            chosen = (cluster == rare).nonzero()[:, 0]
            logits = widen(self._compute_logits(features[chosen], rare))
            inside = F.cross_entropy(logits, ids[chosen] - self._begin(rare), reduction="none")
            losses = losses.index_add(0, chosen, inside)
        return losses

    def work(self) -> tuple[float, float]:
        """Frequencies are taken to be as Zipf's law says, `p(v) ~ 1 / (v + 1)`."""
        table = self.table
        macs = logits = 0.0
        for cluster, (size, columns) in enumerate(zip(table.sizes, table.widths, strict=True)):
            share = 1.0 if cluster == 0 else self._share(cluster)
            rows = size + len(self.cluster_weight) if cluster == 0 else size
            project = columns * table.width if table.is_projected(cluster) else 0
            macs += share * (project + rows * columns)
            logits += share * rows
        return macs, logits

    def _share(self, cluster: int) -> float:
        """The share of tokens in a cluster by Zipf's law."""
        low, high = self._begin(cluster), self._begin(cluster + 1)
        return (_harmonic(high) - _harmonic(low)) / _harmonic(self.vocab_size)

    def _begin(self, cluster: int) -> int:
        return self.table.edges[cluster]

    def _place(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """([P] cluster of each label, -1 for IGNORE; [P] its class among the first choices)."""
        edges = torch.tensor(self.table.cutoffs, device=ids.device, dtype=ids.dtype)
        cluster = torch.bucketize(ids, edges, right=True)
        label = torch.where(cluster == 0, ids, self.table.sizes[0] + cluster - 1)
        return cluster.masked_fill(ids == IGNORE, -1), label

    def _project(self, features: Tensor, cluster: int) -> Tensor:
        """[..., W] -> [..., E_i] states in the columns of a cluster."""
        own = dict(self.projections.items()).get(str(cluster))
        projection = own or self.table.projection(cluster)
        if isinstance(projection, Projection):
            return F.linear(features, projection.weight.T)
        return features

    def _rows(self, cluster: int) -> tuple[Tensor, Tensor | None, int]:
        """(vectors, biases, how many of their rows are classes) of a cluster, with spare rows."""
        bias = None if self.biases is None else cast(Tensor, self.biases[cluster].weight)
        size = self.table.sizes[cluster]
        if cluster:
            return cast(Tensor, self.table.tables[cluster].weight), bias, size
        rows = with_spare(torch.cat([self.table.real_rows(0), self.cluster_weight]))
        if bias is not None and self.cluster_bias is not None:
            bias = with_spare(torch.cat([bias[:size], self.cluster_bias]))
        return rows, bias, size + len(self.cluster_weight)

    def _compute_logits(self, features: Tensor, cluster: int) -> Tensor:
        rows, bias, count = self._rows(cluster)
        return F.linear(self._project(features, cluster), rows, bias)[..., :count]

    def _loss_of(self, features: Tensor, labels: Tensor, cluster: int) -> Tensor:
        """The summed loss of labels inside a cluster."""
        rows, bias, count = self._rows(cluster)
        states = self._project(features, cluster)
        compiled = self.compiled
        return cross_entropy_of_table(
            states, rows, bias, labels, count, self.chunk, compiled=compiled
        )[0]


def _harmonic(count: int) -> float:
    return math.log(count) + _EULER + 1 / (2 * count) if count else 0.0


def _spread_ties(tie_projs: bool | Sequence[bool], clusters: int) -> list[bool]:
    """For each cluster, whether its projection is the embedding's."""
    ties = [tie_projs] * clusters if isinstance(tie_projs, bool) else list(tie_projs)
    if len(ties) != clusters:
        allowed = f"true, false, or one of them for each of the {clusters} clusters"
        raise ConfigError("tie_projs", ties, allowed, fix="tie_projs=true")
    return ties


def _check_tied(table: AdaptiveTable | None, own: Mapping[str, object]) -> None:
    """ConfigError if the model has no table to tie to, or only one of another shape."""
    if table is None:
        allowed = "false: the embedding of this model has no clusters"
        fix = "model.embedding.table={_target_:plmctl.nn.adaptive.AdaptiveTable,cutoffs:[2000]}"
        raise ConfigError("tied", True, allowed, fix=fix)
    for name, value in own.items():
        known = getattr(table, name)
        if value is not None and value != known:
            allowed = f"null, or {known} as in the embedding: its tables are tied"
            raise ConfigError(name, value, allowed, fix=f"{name}=null")
