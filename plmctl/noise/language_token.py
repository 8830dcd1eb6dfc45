"""Texts that end with the name of their language (Liu et al., 2020, mBART)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plmctl.core.batch import Rows
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError
from plmctl.core.parts import part_of
from plmctl.noise.base import Denoising, split_source
from plmctl.noise.masking import find_documents
from plmctl.noise.moves import permute
from plmctl.text.vocab import Vocab


@part_of("noise")
class LanguageToken(Denoising):
    """`cls x_1 .. x_n sep` becomes `x_1 .. x_n sep language`, in source and target.

    The token of language i is the i-th unused slot of the tokenizer; rows without tracks.language
    are in language 0. It comes first among the noises. With model.start=last the decoder begins
    with the language, too. (Liu et al., 2020, arXiv:2001.08210, sec. 2.2.)
    """

    reads = frozenset({"text"})
    uses = frozenset({"tracks.language"})

    def __init__(self, *, vocab: Vocab) -> None:
        self.vocab, self.names = vocab, np.array(vocab.unused, np.int64)

    def __call__(self, rows: Rows, draws: Draws) -> Rows:
        seq = rows.seqs["text"]
        first, length = find_documents(seq)
        last, ids = first + length - 1, seq.ids.ravel()
        if not self.vocab.special[ids[first]].all():
            allowed = "special tokens at both ends of a text: the language replaces the first"
            fix = "format.specials=true"
            raise ConfigError("noise.language_token", "a text without them", allowed, fix=fix)
        language = seq.tracks.get("language", np.zeros_like(seq.ids)).ravel()[first]
        if (most := int(language.max(initial=-1))) >= len(self.names):
            allowed = f"{most + 1} languages: this tokenizer has {len(self.names)} unused slots"
            fix = f"tokenizer.unused={most + 1}, in a new tokenizer"
            raise ConfigError("noise.language_token", most + 1, allowed, fix=fix)
        inside = np.zeros(ids.size + 1, np.int64)
        inside[first] += 1
        inside[last] -= 1
        rows = permute(rows, np.arange(ids.size) + np.cumsum(inside)[:-1])
        named = rows.seqs["text"].ids.copy()
        named.ravel()[last] = self.names[language]
        return split_source(rows.with_seq("text", replace(rows.seqs["text"], ids=named)))
