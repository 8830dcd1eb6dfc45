"""From config to data: token shards, formats, noise, and the loaders of training and validation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import ConfigError, DataError, UsageError, nearest, raise_all
from plmctl.core.progress import show_bytes
from plmctl.data.mixture import check_mixture
from plmctl.data.sample import sample_corpus
from plmctl.data.shards import SPLITS, Shards, is_tokens, read_manifest
from plmctl.data.sharing import share_tokenizer
from plmctl.data.tokenizing import TokenizingJob, find_cache_folder, open_or_tokenize
from plmctl.data.verified import verify_once
from plmctl.run.build import plain
from plmctl.run.tokenize import make_job, show_progress
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.unknown import refuse_unknown, unknown_share
from plmctl.text.vocab import Vocab

SOURCE_KEYS = ("path", "mixture", "format", "noise", "weight")  # of one of `data.sources`


@dataclass(frozen=True)
class Corpus:
    """The tokens of a run, {source: {corpus: tokens}}, and the one tokenizer they share; a
    source that is no mixture has one corpus, called as itself.
    """

    train: Mapping[str, Mapping[str, Shards]]
    # without the corpora that are too small to hold a document out
    valid: Mapping[str, Mapping[str, Shards]]
    tokenizer: Tokenizer

    @property
    def vocab(self) -> Vocab:
        return self.tokenizer.vocab

    def held_out(self) -> dict[str, tuple[str, str]]:
        """{title: (source, corpus)} of what is held out; a title is the corpus, of several
        sources "source.corpus".
        """
        pairs = [(source, name) for source, parts in self.valid.items() for name in parts]
        several = len(self.valid) > 1
        return {
            f"{pair[0]}.{pair[1]}" if several and pair[0] != pair[1] else pair[1]: pair
            for pair in pairs
        }


def open_corpus(cfg: Any) -> Corpus:
    """Open the token directories of all sources and corpora; raw text is tokenized first, once."""
    paths = {
        source: {name: _hashable(part.get("path")) for name, part in node["corpora"].items()}
        for source, node in sources(cfg).items()
    }
    with show_progress() as say:
        jobs = {
            path: make_job(cfg, path, say=say)
            for parts in paths.values()
            for path in parts.values()
        }
        lent = _shared_tokenizer(cfg, jobs)
        if lent is not None:
            jobs = {
                path: replace(each, recipe=replace(each.recipe, path=str(lent)))
                for path, each in jobs.items()
            }
        folders = {
            path: open_or_tokenize(each, cache_dir=cfg.data.cache_dir)
            for path, each in jobs.items()
        }
    tokenizer = _common_tokenizer(cfg, folders.values(), lent)
    train, valid = (
        {
            source: {
                name: Shards.open(folders[path], split, given=path) for name, path in parts.items()
            }
            for source, parts in paths.items()
        }
        for split in SPLITS
    )
    with show_bytes() as say:
        for shards in [
            shards for parts in (*train.values(), *valid.values()) for shards in parts.values()
        ]:
            verify_once(shards, find_cache_folder(cfg.data.cache_dir), say=say)
    _refuse_unknown_text(folders, tokenizer)
    held = {
        source: {name: shards for name, shards in parts.items() if len(shards.ids)}
        for source, parts in valid.items()
    }
    share = (cfg.get("train") or {}).get("share", 1.0)  # runs of before have none
    train = {
        source: {name: part.first(share) for name, part in parts.items()}
        for source, parts in train.items()
    }
    return Corpus(train, held, tokenizer)


def _common_tokenizer(cfg: Any, folders: Iterable[Path], lent: Path | None) -> Tokenizer:
    """The tokenizer that all token directories were made with; DataError for another one."""
    wanted = cfg.tokenizer.get("path") if cfg.tokenizer else None
    given = wanted or lent or next(iter(folders))
    tokenizer = Tokenizer.load(given)
    whose = (
        "the one the model starts from"
        if cfg.init
        else "tokenizer.path"
        if wanted
        else "that of the first corpus"
    )
    for home in folders:
        found = read_manifest(home)["tokenizer"]["fingerprint"]
        if found != tokenizer.fingerprint:
            raise DataError(
                f"these tokens were made with another tokenizer than {whose} ({given}): {found},"
                f" not {tokenizer.fingerprint}",
                file=home,
                fix=(
                    "give the text instead of its tokens,"
                    f" or tokenize it again with tokenizer.path={given}"
                ),
            )
    return tokenizer


def _refuse_unknown_text(folders: Mapping[Any, Path], tokenizer: Tokenizer) -> None:
    """DataError for a text of which the tokenizer knows too little."""
    for path, home in folders.items():
        sample = sample_corpus(Shards.open(home, "train", given=path).ids)
        fix = (
            "a tokenizer of this text (no tokenizer.path,"
            " more tokenizer.vocab_size), or of any: tokenizer=byte_bpe"
        )
        refuse_unknown(unknown_share(sample, tokenizer.vocab), file=path or home, fix=fix)


def _shared_tokenizer(cfg: Any, jobs: Mapping[Any, TokenizingJob]) -> Path | None:
    """What several texts share where no tokenizer is given: that of the first token directory,
    or one trained on all.
    """
    if len(jobs) == 1 or (cfg.tokenizer and cfg.tokenizer.get("path")):
        return None
    known = next((Path(path).expanduser() for path in jobs if is_tokens(path)), None)
    return known or share_tokenizer(list(jobs.values()), cache_dir=cfg.data.cache_dir)


def sources(cfg: Any) -> dict[str, dict[str, Any]]:
    """{name: {corpora, format, noise, weight}}; a run without `data.sources` has one source,
    called "text".
    """
    common = {"format": plain(cfg.format), "noise": plain(cfg.noise), "weight": 1.0}
    given = plain(cfg.data.sources) or {"text": {}}
    return {
        name: {**common, **node, "corpora": _corpora(cfg, name, node)}
        for name, node in given.items()
    }


def _corpora(cfg: Any, source: str, node: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{corpus: {path, weight}} of a source: its mixture, or its path as one corpus; by default
    those of `data`.
    """
    own = node if "mixture" in node or "path" in node else plain(cfg.data)
    return own.get("mixture") or {source: {"path": own.get("path")}}


def check_data(cfg: Any) -> None:
    """The settings of sources and mixtures, before any data are read; all mistakes are raised
    together.
    """
    data = plain(cfg.data)
    errors: list[UsageError] = []
    mixtures = {"data.mixture": data["mixture"]}
    for name, node in data["sources"].items():
        known = f"there is no such setting; there are {', '.join(SOURCE_KEYS)}"
        for key in [key for key in node if key not in SOURCE_KEYS]:
            errors.append(
                ConfigError(
                    f"data.sources.{name}.{key}", node[key], known + nearest(key, SOURCE_KEYS)
                )
            )
        mixtures[f"data.sources.{name}.mixture"] = node.get("mixture")
    mixtures = {path: mixture for path, mixture in mixtures.items() if mixture}
    for path, mixture in mixtures.items():
        errors += check_mixture(mixture, data["temperature"], path)
        if data["valid_path"] is not None:
            fix = "plmctl tokenize data.valid_path=..., and name the token directories"
            allowed = f"each corpus of {path} holds documents of its own out"
            errors.append(ConfigError("data.valid_path", data["valid_path"], allowed, fix=fix))
    if data["temperature"] is not None and not mixtures:
        errors.append(
            ConfigError(
                "data.temperature", data["temperature"], "has no effect without data.mixture"
            )
        )
    if data["path"] is not None and data["mixture"]:
        fix = "make it one of the mixture's corpora"
        errors.append(
            ConfigError("data.path", data["path"], "has no effect beside data.mixture", fix=fix)
        )
    raise_all(errors)


def _hashable(path: Any) -> Any:
    return tuple(path) if isinstance(path, Sequence) and not isinstance(path, str) else path
