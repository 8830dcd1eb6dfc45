"""Small real text and small token directories, made once a session."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # reproducible, and other tests may run beside


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Tokens that a test makes stay out of the user's cache."""
    patch = pytest.MonkeyPatch()
    patch.setenv("PLMCTL_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def small_text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 100 kB of the embedded corpus as a text file, a blank line between documents."""
    from plmctl.data.survey import Source

    file = tmp_path_factory.mktemp("text") / "small.txt"
    documents = ["\n".join(document.sentences) for document in itertools.islice(Source("builtin").documents(), 60)]
    file.write_text("\n\n".join(documents)[:100_000], encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def tokens_of(small_text: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tokens_of("wordpiece")`: a token directory of `small_text`, made once for each kind and setting."""
    from plmctl.config.build import build
    from plmctl.config.compose import compose
    from plmctl.data.survey import Source
    from plmctl.data.tokenizing import Job, tokenize

    made: dict[tuple[str, ...], Path] = {}

    def make(kind: str, *settings: str) -> Path:
        key = (kind, *settings)
        if key not in made:
            folder = tmp_path_factory.mktemp("tokens") / kind
            cfg = compose("tokenize", None, [f"tokenizer={kind}", "tokenizer.vocab_size=600", f"out={folder}", *settings])
            tokenize(Job(source=Source(str(small_text)), recipe=build(cfg.tokenizer), valid_share=0.1, processes=1), folder)
            made[key] = folder
        return made[key]

    return make
