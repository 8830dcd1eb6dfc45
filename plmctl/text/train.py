"""The recipes that learn a vocabulary from text: one class a kind, with a few numbers and
`train(texts)`.
"""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from plmctl.core.errors import ConfigError, nearest
from plmctl.core.foreign import run_in_thread
from plmctl.core.parts import part_of
from plmctl.text import roles, segmented
from plmctl.text.backend import Backend
from plmctl.text.recipe import Recipe, choose_characters, list_required, no_text_error
from plmctl.text.roles import Roles
from plmctl.text.rust import Rust, finish
from plmctl.text.segmented import SegmentedBackend, space_words
from plmctl.text.sentence_piece import SentencePiece
from plmctl.text.trial import remember
from plmctl.text.words import Word, chain_rules


@dataclass(frozen=True)
class _Pieces(Recipe):
    _: KW_ONLY
    # share of the characters of the text; the rest become [UNK] or bytes
    character_coverage: float = 0.9995
    byte_fallback: bool = False
    lowercase: bool = False
    # xlnet: <pad> <unk> <cls> <sep> ..., <cls> at the end of a row; None: BERT's
    specials: str | None = None

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        families = {None: roles.BERT, "xlnet": roles.XLNET}
        if self.specials not in families:
            allowed = f"xlnet, or null{nearest(str(self.specials), ['xlnet'])}"
            raise ConfigError("tokenizer.specials", self.specials, allowed)
        special, model = self.special(families[self.specials]), io.BytesIO()
        lines = list(_nonempty(texts))
        try:
            run_in_thread(
                sentencepiece.SentencePieceTrainer.train,
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=self.kind,
                vocab_size=self.vocab_size,
                character_coverage=self.character_coverage,
                required_chars="".join(sorted(list_required(self._list_read(lines)))),
                byte_fallback=self.byte_fallback,
                normalization_rule_name="nmt_nfkc_cf" if self.lowercase else "nmt_nfkc",
                pad_id=0,
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                pad_piece=special.pad,
                unk_piece=special.unk,
                control_symbols=[
                    token for token in special.tokens if token not in (special.pad, special.unk)
                ],
                num_threads=4,  # fixed: the sums of the training, and so the pieces, depend on it
                max_sentence_length=1 << 20,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise self._explain(str(error)) from error
        remember(model.getvalue())
        return SentencePiece(model.getvalue(), special), special

    def _list_read(self, lines: Iterable[str]) -> set[str]:
        """The different characters of lines, as the model reads them."""
        each = (unicodedata.normalize("NFKC", own) for own in set[str]().union(*lines))
        return set[str]().union(*(own.casefold() if self.lowercase else own for own in each))

    def _explain(self, message: str) -> ConfigError:
        if match := re.search(r"value <= (\d+)", message):
            return self.size_too_large_error(int(match[1]))
        if match := re.search(r"required_chars\. \d+ vs (\d+)", message):
            return self.size_too_small_error(int(match[1]))
        allowed = f"sentencepiece cannot train on this text: {message}"
        return ConfigError("tokenizer.vocab_size", self.vocab_size, allowed)


@part_of("tokenizer")
class Unigram(_Pieces):
    """A unigram language model over pieces (Kudo, 2018, arXiv:1804.10959)."""

    kind = "unigram"


@part_of("tokenizer")
class BPE(_Pieces):
    """Byte-pair encoding over characters (Sennrich et al., 2016, arXiv:1508.07909)."""

    kind = "bpe"


@part_of("tokenizer")
@dataclass(frozen=True)
class WordPiece(Recipe):
    """BERT's tokenizer: words split greedily into the longest known pieces (Devlin et al., 2019; Wu
    et al., 2016).

    Differs: the vocabulary is grown by merges (as in `tokenizers`), since Google's trainer was
    never published.
    """

    kind = "wordpiece"
    _: KW_ONLY
    lowercase: bool = True
    # take the marks off letters (é becomes e); None: where `lowercase`, as BERT does
    strip_accents: bool | None = None
    # nfkc: １２ is read as 12; None: as written, as BERT
    normalize: Literal["nfkc"] | None = None
    character_coverage: float = 0.9995
    min_frequency: int = 2
    # pieces of Chinese words; None: Chinese characters alone
    segment: Literal["jieba", "jieba_hmm"] | None = None

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        special = self.special()
        if self.segment is not None:
            cut = segmented.find(self.segment)
            texts = (space_words(text, cut)[0] for text in texts)
        tokenizer = tokenizers.Tokenizer(
            models.WordPiece(unk_token=special.unk, max_input_chars_per_word=100)
        )
        rules = normalizers.BertNormalizer(
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            handle_chinese_chars=self.segment is None,
        )
        tokenizer.normalizer = chain_rules(self.normalize, [rules])
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        words = Counter[str]()
        for spaced, count in Counter(word for text in texts for word in text.split()).items():
            for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(
                tokenizer.normalizer.normalize_str(spaced)
            ):
                words[word] += count
        alphabet, known = choose_characters(words, self.character_coverage), special.tokens
        # characters inside words; Chinese ones only where words are segmented
        inner = {character for word in words for character in word[1:]}
        inner |= list_required(inner)
        # Both forms of every character come first and in order; the trainer would number them at
        # random.
        known += [*alphabet, *(f"##{character}" for character in alphabet if character in inner)]
        if len(known) > self.vocab_size:
            raise self.size_too_small_error(len(known))
        trainer = trainers.WordPieceTrainer(
            vocab_size=self.vocab_size,
            special_tokens=known,
            min_frequency=self.min_frequency,
            limit_alphabet=0,
            show_progress=False,
        )
        covered = set(alphabet)
        usable = (f"{word} " * count for word, count in words.items() if covered.issuperset(word))
        learner = tokenizers.Tokenizer(models.WordPiece(unk_token=special.unk))
        learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        learner.train_from_iterator(usable, trainer)
        vocab = learner.get_vocab()
        if len(vocab) < self.vocab_size:
            raise self.size_too_large_error(len(vocab))
        tokenizer.model = models.WordPiece(
            vocab, unk_token=special.unk, max_input_chars_per_word=100
        )
        tokenizer.decoder = decoders.WordPiece(cleanup=False)
        backend = Rust(finish(tokenizer, special))
        return (
            backend if self.segment is None else SegmentedBackend(backend, self.segment)
        ), special


@part_of("tokenizer")
@dataclass(frozen=True)
class ByteBPE(Recipe):
    """Byte-level BPE: no unknown tokens, spaces kept (Radford et al., 2019); the ids are in the
    order of RoBERTa or GPT-2.
    """

    kind = "byte_bpe"
    _: KW_ONLY
    # <s> <pad> </s> <unk> first and <mask> last; gpt2: one <|endoftext|>, last
    specials: str = "roberta"
    min_frequency: int = 2

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        families = {
            "roberta": (roles.ROBERTA, ["<s>", "<pad>", "</s>", "<unk>"], ["<mask>"]),
            "gpt2": (roles.GPT2, [], roles.GPT2.tokens),
        }
        if self.specials not in families:
            allowed = f"roberta or gpt2{nearest(str(self.specials), families)}"
            raise ConfigError("tokenizer.specials", self.specials, allowed)
        family, first, last = families[self.specials]
        special = self.special(family)
        last = [*special.further, *last]
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        if self.vocab_size < len(alphabet) + len(first) + len(last):
            raise self.size_too_small_error(len(alphabet) + len(first) + len(last))
        learner = tokenizers.Tokenizer(models.BPE())
        learner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=self.vocab_size,
            min_frequency=self.min_frequency,
            initial_alphabet=alphabet,
            show_progress=False,
        )
        learner.train_from_iterator(texts, trainer)
        learnt = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
        tokens, merges = _grow(
            learnt, alphabet, self.vocab_size - len(first) - len(last), {*first, *last}
        )
        all_tokens = [*first, *tokens, *last]
        if len(all_tokens) < self.vocab_size:
            raise self.size_too_large_error(len(all_tokens))
        tokenizer = tokenizers.Tokenizer(
            models.BPE({token: i for i, token in enumerate(all_tokens)}, merges)
        )
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        return Rust(finish(tokenizer, special)), special


@part_of("tokenizer")
@dataclass(frozen=True)
class Char(Recipe):
    """One token for each character, spaces included: as many as cover the text, at most
    `vocab_size`.
    """

    kind = "char"
    is_bound = True
    _: KW_ONLY
    character_coverage: float = 1.0

    def train(self, texts: Iterable[str]) -> tuple[Backend, Roles]:
        counts = Counter[str]()
        for text in texts:
            counts.update(text)
        special = self.special()
        if self.vocab_size <= len(special.tokens):
            raise self.size_too_small_error(len(special.tokens) + 1)
        alphabet = choose_characters(counts, self.character_coverage)[
            : self.vocab_size - len(special.tokens)
        ]
        # BPE without merges: each character is a word piece of its own.
        vocab = {token: i for i, token in enumerate([*special.tokens, *alphabet])}
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab, [], unk_token=special.unk))
        tokenizer.decoder = decoders.Fuse()
        return Rust(finish(tokenizer, special)), special


KINDS: dict[str, type[Recipe]] = {
    kind.kind: kind for kind in (Unigram, BPE, WordPiece, ByteBPE, Char, Word)
}


def _grow(
    merges: list[tuple[str, ...]], alphabet: list[str], size: int, forbidden: set[str]
) -> tuple[list[str], list[tuple[str, str]]]:
    """Use the merges that make the first `size` tokens, without merges that would spell a special
    token.

    With the alphabet a b c, size 5, and "abc" forbidden:

        merge     token   kept
        a b       ab      yes (4 tokens)
        ab c      abc     no: it spells a special token
        abc a     -       no: "abc" is not a token
        b c       bc      yes (5 tokens)
        c a       ca      the vocabulary is full: stop
    """
    tokens = dict.fromkeys(alphabet)
    kept: list[tuple[str, str]] = []
    for left, right in merges:
        if left not in tokens or right not in tokens or left + right in forbidden:
            continue
        if left + right not in tokens and len(tokens) == size:
            break
        tokens[left + right] = None
        kept.append((left, right))
    return list(tokens), kept


def _nonempty(texts: Iterable[str]) -> Iterator[str]:
    """The lines of `texts` that are not blank (sentencepiece reads lines).

    Raises:
        DataError: if there are no texts.
    """
    any_text = False
    for text in texts:
        for line in text.splitlines():
            if line.strip():
                any_text = True
                yield line
    if not any_text:
        raise no_text_error()
