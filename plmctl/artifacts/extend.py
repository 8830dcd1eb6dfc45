"""`plmctl extend`: a model is given tokens of the words of another text, which continue what it
knows of their pieces.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import partial

from torch import Tensor

from plmctl.artifacts.adapter_base import refuse_methods
from plmctl.artifacts.added_tokens import write_with_tokens
from plmctl.artifacts.loading import Source, open_source
from plmctl.config.build import plain
from plmctl.config.uses import Extend
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.progress import show_bytes
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.data.shards import is_tokens
from plmctl.data.survey import survey_text
from plmctl.inputs.tokenize import find_sources
from plmctl.interop.family import find_token_tables
from plmctl.storage.resumable import new_folder
from plmctl.tasks.record import cut
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import count_unknown_words


def extend(spec: Extend) -> int:
    """Write `out`, a model that any command reads, and say what its tokens are worth."""
    _check_data(spec)
    out = new_folder(spec.out)
    source = _open_model(spec)
    texts = _read_texts(spec)
    own = source.tokenizer
    tokenizer, pieces = own.extend(texts, tokens=spec.tokens, least=spec.least)
    fill = partial(_fill_with_means, pieces) if spec.rows == "pieces" else _keep_drawn
    write_with_tokens(source, tokenizer, fill, out)
    before, after = (int(each.encode_flat(texts)[1].sum()) for each in (own, tokenizer))
    unknown = count_unknown_words(tokenizer, texts)
    if spec.provenance.json:
        counts = {"tokens": len(pieces), "before": before, "after": after}
        tell(json.dumps({"out": spec.out, **counts, "unknown_words": len(unknown)}))
        return 0
    lines = _describe(spec, tokenizer, own, len(pieces), (before, after))
    lines += describe_unknown_words(unknown, spec.out)
    start = spell_setting("init", spec.out)
    tell("\n".join([*lines, f"next: plmctl pretrain <recipe> {start} data.path=<text>"]))
    return 0


def _check_data(spec: Extend) -> None:
    """ConfigError for settings of `data` that are about tokens on disk: none are written."""
    given = {name: spec.data.get(name) for name in ("segment", "cache_dir")}
    allowed = "null: the text is read once, as it stands, and none of its tokens are kept"
    raise_all(
        ConfigError(f"data.{name}", value, allowed, fix="leave it out")
        for name, value in given.items()
        if value is not None
    )


def _open_model(spec: Extend) -> Source:
    """ConfigError for a model to whose tables no rows can be added."""
    source = open_source(spec.checkpoint, plugins=spec.plugins)
    refuse_methods(source, "checkpoint")
    if len(find_token_tables(source.tensors)) != 1:
        allowed = "a model with one table of tokens, a row for each"
        raise ConfigError("checkpoint", spec.checkpoint, allowed, fix="another model")
    return source


def _read_texts(spec: Extend) -> list[str]:
    """The sample that tokens are learned from: no document that is held out."""
    data, path = plain(spec.data), plain(spec.data.path)
    if is_tokens(path):
        raise ConfigError("data.path", path, "holds tokens; give the text they were made from")
    source, valid = find_sources(data, path)
    with show_bytes() as say:
        share = 0 if valid else data["valid_share"]
        sample_bytes = spec.sample_bytes
        survey = survey_text(source, valid_share=share, sample_bytes=sample_bytes, say=say)
    return [sentence for document in survey.sample for sentence in document.sentences]


def _fill_with_means(pieces: Sequence[Sequence[int]], table: Tensor, rows: slice) -> None:
    """The row of a new token is the mean of those of its pieces, in every table: so are its vector,
    and its logit wherever it is predicted.
    """
    for number, parts in enumerate(pieces, rows.start):
        table[number] = table[list(parts)].float().mean(0).to(table)


def _keep_drawn(table: Tensor, rows: slice) -> None:
    """Leave the rows as a new model draws them."""


def _describe(
    spec: Extend, tokenizer: Tokenizer, own: Tokenizer, added: int, counts: tuple[int, int]
) -> list[str]:
    before, after = counts
    first = own.vocab.size
    shown = " ".join(tokenizer.pieces(range(first, min(first + 8, tokenizer.vocab.size))))
    fewer = 1 - after / max(before, 1)
    lines = [
        f"{spec.out}: {added:,} new tokens, such as {shown}",
        f"the text that they were learned from has {after:,} tokens instead of {before:,}"
        f" ({fewer:.1%} fewer)",
    ]
    if added < spec.tokens:
        lines.append(f"no more than {added:,} stand {spec.least} times in it (tokens, least)")
    return lines


def describe_unknown_words(words: Counter[str], out: str) -> list[str]:
    """Which words stay unknown to the model `out`, and what makes tokens of those of letters."""
    if not words:
        return []
    shown = " ".join(cut(word, 20) for word, _ in words.most_common(8))
    which = "word of it stays" if len(words) == 1 else "words of it stay"
    lines = [
        f"{len(words):,} {which} unknown, {words.total():,} times in all, such as {shown}:"
        " new tokens are made of tokens that the tokenizer has"
    ]
    if any(map(str.isalnum, "".join(words))):  # a sign is no word
        fix = f"  fix: plmctl inject {spell_setting('checkpoint', out)} word_vectors=random"
        lines.append(
            f"{fix} form=replace words=WORDS.tsv out=FOLDER  # a file: word, tab, how often"
        )
    return lines
