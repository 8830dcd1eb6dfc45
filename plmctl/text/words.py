"""A vocabulary of complete words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from plmctl.core.parts import part_of
from plmctl.text.backend import Backend
from plmctl.text.letters import JOINERS
from plmctl.text.recipe import Recipe, no_text_error
from plmctl.text.roles import Roles
from plmctl.text.rust import Rust, finish
from plmctl.text.sentences import CJK


def chain_rules(normalize: Literal["nfkc"] | None, rules: list[Any]) -> Any:
    """The normalizers of a tokenizer, with NFKC first if it is set; None for no rule."""
    first = [] if normalize is None else [normalizers.NFKC()]
    every = [*first, *rules]
    return normalizers.Sequence(every) if len(every) > 1 else next(iter(every), None)


@part_of("tokenizer")
@dataclass(frozen=True)
class Word(Recipe):
    """A vocabulary of complete words, the most frequent first, at most `vocab_size`; other words
    are [UNK] (ELMo's softmax: Peters et al., 2018).
    """

    kind = "word"
    is_bound = True
    _: KW_ONLY
    lowercase: bool = False
    # nfkc: １２ is read as 12; None: as written
    normalize: Literal["nfkc"] | None = None
    # marks and Chinese characters are words by themselves; false: words end at spaces only
    punctuation: bool = True
    min_frequency: int = 1

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        special = self.special()
        tokenizer = tokenizers.Tokenizer(models.WordLevel({}, unk_token=special.unk))
        lower = [normalizers.Lowercase()] if self.lowercase else []
        tokenizer.normalizer = chain_rules(self.normalize, lower)
        alone = pre_tokenizers.Split(tokenizers.Regex(rf"[^\w\s{JOINERS}]|[{CJK}]"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), *([alone] if self.punctuation else [])]
        )
        words = Counter[str]()
        for spaced, count in Counter(word for text in texts for word in text.split()).items():
            cased = (
                spaced
                if tokenizer.normalizer is None
                else tokenizer.normalizer.normalize_str(spaced)
            )
            for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(cased):
                words[word] += count
        if not words:
            raise no_text_error()
        room = self.vocab_size - len(special.tokens)
        if room < 1:
            raise self.size_too_small_error(len(special.tokens) + 1)
        for token in special.tokens:
            del words[token]
        frequent = sorted(
            (-count, word) for word, count in words.items() if count >= self.min_frequency
        )[:room]
        vocab = {
            token: i for i, token in enumerate([*special.tokens, *(word for _, word in frequent)])
        }
        tokenizer.model = models.WordLevel(vocab, unk_token=special.unk)
        return Rust(finish(tokenizer, special)), special
