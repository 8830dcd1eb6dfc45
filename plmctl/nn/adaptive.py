"""Tables of tokens by clusters of frequency: rare tokens have narrow vectors (Baevski and Auli,
2019; Dai et al., 2019).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.values import Count
from plmctl.nn.tables import Lookup, Padded, padded, with_spare


class Projection(nn.Linear):
    """[..., E] -> [..., W] without bias: from the vectors of a cluster to the model's width."""

    def __init__(self, width: int, to: int) -> None:
        super().__init__(width, to, bias=False)


class ClusterTable(Padded, nn.Embedding):
    """Ids inside of a cluster [...] -> [..., E], by a table of `padded(vocab_size)` rows."""

    def __init__(self, *, vocab_size: int, width: int) -> None:
        super().__init__(
            padded(vocab_size), width, _weight=with_spare(torch.empty(vocab_size, width).normal_())
        )
        self.vocab_size = vocab_size


@part_of("table")
class AdaptiveTable(Lookup):
    """`x = table_i[id - c_i] P_i^T` for the cluster `c_i <= id < c_{i+1}`, ids [...] -> [..., W].

    The vocabulary has to be sorted by frequency. `cutoffs` [c_1, .., c_k] part it into k + 1
    clusters: c_0 = 0, c_{k+1} = V. The vectors of cluster i have `E / div_val^i` columns (E =
    `table_width`, null: the model's width), and a projection of its own leads to W; with `div_val`
    1 one projection serves all. If E = W there is no projection, except with `proj_same_dim`.
    (Baevski and Auli, 2019, arXiv:1809.10853, sec. 3; Dai et al., 2019, arXiv:1901.02860, and its
    released code.)
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        cutoffs: Sequence[Count],
        div_val: Count = 1,
        table_width: Count | None = None,
        proj_same_dim: bool = False,
    ) -> None:
        super().__init__()
        check_cutoffs(cutoffs, vocab_size)
        inner = table_width or width
        if inner < div_val ** len(cutoffs):
            allowed = f"a whole number whose power {len(cutoffs)} is at most {inner}, the width of"
            raise ConfigError("div_val", div_val, f"{allowed} the first cluster", fix="div_val=1")
        self.width, self.num_embeddings = width, vocab_size
        self.cutoffs, self.div_val, self.table_width = list(cutoffs), div_val, inner
        self.proj_same_dim = proj_same_dim
        self.edges = [0, *cutoffs, vocab_size]
        self.sizes = [high - low for low, high in itertools.pairwise(self.edges)]
        self.widths = [inner // div_val**cluster for cluster in range(len(self.sizes))]
        self.tables = nn.ModuleList(
            ClusterTable(vocab_size=size, width=columns)
            for size, columns in zip(self.sizes, self.widths, strict=True)
        )
        own = self.widths if div_val > 1 else self.widths[:1]
        self.projections = nn.ModuleList(
            Projection(columns, width) if self.is_projected(cluster) else nn.Identity()
            for cluster, columns in enumerate(own)
        )

    def is_projected(self, cluster: int) -> bool:
        """Whether vectors of a cluster go through a projection."""
        return self.proj_same_dim or self.widths[cluster] != self.width

    def projection(self, cluster: int) -> nn.Module:
        """The `Projection` of a cluster, or nothing but identity."""
        return self.projections[cluster if self.div_val > 1 else 0]

    def real_rows(self, cluster: int) -> Tensor:
        """[V_i, E_i] the vectors of a cluster without spare rows."""
        return self.tables[cluster].weight[: self.sizes[cluster]]  # type: ignore[index,union-attr]

    def forward(self, ids: Tensor) -> Tensor:
        # every cluster looks up all ids: no number has to be known that a GPU has not computed yet
        vectors: Tensor | None = None
        for cluster, (low, size) in enumerate(zip(self.edges[:-1], self.sizes, strict=True)):
            place = ids - low
            own = self.tables[cluster](place.clamp(0, size - 1))
            own = self.projection(cluster)(own) if self.div_val > 1 else own
            inside = ((place >= 0) & (place < size))[..., None]
            vectors = own if vectors is None else torch.where(inside, own, vectors)
        if self.div_val > 1:
            assert vectors is not None  # there is a cluster
            return vectors
        shared: Tensor = self.projection(0)(vectors)
        return shared


def check_cutoffs(cutoffs: Sequence[int], vocab_size: int) -> None:
    """ConfigError for cutoffs that do not rise, or that leave a cluster without tokens."""
    given = list(cutoffs)
    if any(high <= low for low, high in itertools.pairwise(given)):
        allowed = "ids that rise: each cluster begins where the one before it ends"
        raise ConfigError("cutoffs", given, allowed, fix=f"cutoffs={_write(sorted(set(given)))}")
    if given and given[-1] >= vocab_size:
        fitting = [cutoff for cutoff in given if cutoff < vocab_size]
        allowed = f"ids below {vocab_size:,}, the size of the vocabulary: each begins a cluster"
        raise ConfigError("cutoffs", given, allowed, fix=f"cutoffs={_write(fitting)}")


def _write(cutoffs: Sequence[int]) -> str:
    return f"[{','.join(map(str, cutoffs))}]"
