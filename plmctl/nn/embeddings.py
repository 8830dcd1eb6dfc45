"""From ids to the input of the first layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch import Tensor, nn

from plmctl.core.batch import Seq
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.core.problems import PartContext
from plmctl.core.values import DropoutRate
from plmctl.nn.dropout import Dropout
from plmctl.nn.norm import norm_tokens
from plmctl.nn.positions import Position
from plmctl.nn.tables import Lookup, TokenTable
from plmctl.nn.track_vectors import TrackVectors


@part_of("embedding")
class Embedding(nn.Module):
    """`dropout(norm(token[id] + segment[segment id] + position))`, ids [B, T] -> [B, T, W] (Devlin
    et al., 2019, sec. 3, fig. 2).

    `segments = 0` omits the segment table (RoBERTa, GPT), `norm = None` the norm (GPT). Rows
    without a segment track have segment 0, as all rows where there is only one. `languages` is
    another such table, by tracks.language (Conneau and Lample, 2019, arXiv:1901.07291, sec. 3.1);
    rows without this track have `usual_language`.
    `norm_first` adds positions after the norm, as the decoder of Blenderbot's smallest model does
    (Roller et al., 2021, arXiv:2004.13637). With `table_width` E, tables, positions and norm have E
    columns and a linear map leads from E to W: the factorised embedding (Lan et al., 2020,
    arXiv:1909.11942, sec. 3.1). E = W is the same as none. With `project_first` that map has no
    bias and stands before the norm, which has W columns (DeBERTa). With `mapped` there is a map
    where E = W, too, and dropout acts on its result (FNet). With `scaled`, token vectors count
    sqrt(E) times (Vaswani et al., 2017, arXiv:1706.03762, sec. 3.4). `table` makes another table
    of tokens, such as one by clusters of frequency (`nn.adaptive.AdaptiveTable`). `tracks` add
    vectors of other known facts about a token (`nn.track_vectors`).
    """

    uses = frozenset({"tracks.segment", "tracks.language"})

    def __init__(
        self,
        *,
        vocab_size: int,
        width: int,
        dropout: DropoutRate,
        segments: int = 0,
        languages: int = 0,
        usual_language: int = 0,
        norm: Callable[..., nn.Module] | None = None,
        table_width: int | None = None,
        scaled: bool = False,
        table: Callable[..., Lookup] | None = None,
        tracks: Sequence[Callable[..., TrackVectors]] = (),
        norm_first: bool = False,
        project_first: bool = False,
        mapped: bool = False,
    ) -> None:
        super().__init__()
        if mapped and (project_first or norm_first):
            first = "project_first" if project_first else "norm_first"
            allowed = f"false: with {first}, dropout is elsewhere"
            raise ConfigError("model.embedding.mapped", True, allowed)
        if usual_language and usual_language >= languages:
            allowed = f"less than languages={languages}"
            raise ConfigError("model.embedding.usual_language", usual_language, allowed)
        inner = table_width or width
        self.width, self.table_width = width, inner
        self.factor = inner**0.5 if scaled else 1.0
        make: Callable[..., nn.Module] = table or TokenTable
        self.token = make(vocab_size=vocab_size, width=inner)
        self.segment = nn.Embedding(segments, inner) if segments else None
        self.language = nn.Embedding(languages, inner) if languages else None
        self.usual_language = usual_language
        self.tracks = nn.ModuleList(make(width=inner, vocab_size=vocab_size) for make in tracks)
        self.project_first = project_first and inner != width
        self.norm = norm(width=width if project_first else inner) if norm else nn.Identity()
        self.norm_first = norm_first
        self.dropout = Dropout(rate=dropout)
        needed, self.mapped = mapped or inner != width, mapped
        linear = nn.Linear(inner, width, bias=not project_first) if needed else None
        self.project = linear or nn.Identity()

    def problems(self, path: str, around: PartContext) -> Iterator[ConfigError]:
        """Segments of rows that the table lacks."""
        needed = 1 if around.format is None else around.format.last_segment + 1
        if self.segment is not None and self.segment.num_embeddings < needed:
            allowed = f"at least {needed}: rows of this format have segments up to {needed - 1}"
            fix = f"{path}.segments={needed}"
            fix = "init=<a run whose model has as many>" if around.begun else fix
            yield ConfigError(f"{path}.segments", self.segment.num_embeddings, allowed, fix=fix)

    def forward(
        self, seq: Seq, position: Position, positions: Tensor, vectors: Tensor | None = None
    ) -> Tensor:
        """[B, T, W]; `vectors` [B, T, E] replace those of the token table."""
        x = self.token(seq.ids) if vectors is None else vectors
        x = x if self.factor == 1.0 else x * self.factor
        tables = (self.segment, "segment", 0), (self.language, "language", self.usual_language)
        for kinds, name, usual in tables:
            if kinds is not None:
                kind = seq.tracks.get(name)
                only = kind is None or kinds.num_embeddings == 1
                x = x + (kinds.weight[usual] if only else kinds(kind))
        for part in self.tracks:
            x = x + part(seq)
        real = None if seq.full else seq.real
        if self.norm_first:
            return self.project(
                self.dropout(position.embed(norm_tokens(self.norm, x, real), positions))
            )
        x = position.embed(x, positions)
        if self.project_first:
            return self.dropout(norm_tokens(self.norm, self.project(x), real))
        if self.mapped:
            return self.dropout(self.project(norm_tokens(self.norm, x, real)))
        return self.project(self.dropout(norm_tokens(self.norm, x, real)))
