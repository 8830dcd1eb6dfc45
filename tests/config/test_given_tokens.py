"""Settings that a token directory has decided are refused where the user gives them, and passed
over where a recipe does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.text_checks import refuse_decided
from plmctl.core.errors import ConfigError, ConfigErrors

TokensOf = Callable[..., Path]
FIX = "\n  fix: # leave it out, or give the text instead of its tokens"


def errors_of(recipe: str, *words: str) -> list[str]:
    """What is wrong with settings beside a directory of tokens."""
    cfg = compose("pretrain", recipe, words)
    try:
        refuse_decided(cfg, cfg.provenance.keys)
    except ConfigErrors as errors:
        return [str(error) for error in errors.errors]
    except ConfigError as error:
        return [str(error)]
    return []


def test_a_recipe_may_name_another_tokenizer(tokens_of: TokensOf) -> None:
    path = f"data.path={tokens_of('wordpiece')}"
    assert errors_of("roberta", path, "size=mini", "train.minutes=60") == []


def test_all_that_the_user_says_beside_tokens_is_refused_at_once(tokens_of: TokensOf) -> None:
    tokens = tokens_of("wordpiece")
    words = [
        "tokenizer=unigram",
        "tokenizer.vocab_size=99",
        "data.valid_path=x.txt",
        "data.valid_share=0.5",
        "data.lines=wrapped",
        "data.field=body",
        "data.segment=jieba",
    ]
    decided = f"the tokens of {tokens} decide this"
    other = "data.path=TEXT data.segment=jieba  # to tokenize again; or leave"
    again = FIX.replace("# leave", other)
    assert errors_of("bert", f"data.path={tokens}", *words) == [
        f"tokenizer='unigram': {decided}: wordpiece{FIX}",
        f"tokenizer.vocab_size=99: {decided}: 600{FIX}",
        f"data.valid_path='x.txt': {decided}{FIX}",
        f"data.valid_share=0.5: {decided}: 0.1{FIX}",
        f"data.field='body': {decided}: text{FIX}",
        f"data.lines='wrapped': {decided}: auto{FIX}",
        f"data.segment='jieba': {decided}: null{again}",
    ]


def test_what_the_tokens_were_made_with_may_be_said_again(tokens_of: TokensOf) -> None:
    tokens = tokens_of("wordpiece")
    same = ["tokenizer=wordpiece", "tokenizer.vocab_size=600", "data.valid_share=0.1"]
    assert errors_of("bert", f"data.path={tokens}", *same) == []
    # with a tokenizer, its size is idle, as it is for a text
    idle = [f"tokenizer.path={tokens}", "tokenizer.vocab_size=99"]
    assert errors_of("bert", f"data.path={tokens}", *idle) == []


def test_tokens_of_a_tokenizer_that_was_given(
    tokens_of: TokensOf, small_text: Path, tmp_path: Path
) -> None:
    words = [
        f"data.path={small_text}",
        f"tokenizer.path={tokens_of('wordpiece')}",
        f"out={tmp_path / 'tokens'}",
    ]
    assert CliRunner().invoke(make_app(), ["tokenize", *words]).exit_code == 0
    told = (
        r"tokenizer\.vocab_size=600: the tokens of .* decide this: their tokenizer is that of"
        rf" {tokens_of('wordpiece')}"
    )
    (error,) = errors_of("bert", f"data.path={tmp_path / 'tokens'}", "tokenizer.vocab_size=600")
    assert re.search(told, error)


def test_a_text_beside_tokens_is_still_read_as_the_user_says(
    tokens_of: TokensOf, small_text: Path
) -> None:
    mixed = [f"data.mixture.a.path={tokens_of('wordpiece')}", f"data.mixture.b.path={small_text}"]
    assert errors_of("bert", *mixed, "data.lines=wrapped") == []
    (error,) = errors_of("bert", *mixed, "tokenizer=bpe")
    assert "tokenizer='bpe'" in error


@pytest.mark.parametrize("sweep", [[], ["-m"]])
def test_the_command_refuses_before_it_writes(
    tokens_of: TokensOf, tmp_path: Path, sweep: list[str]
) -> None:
    words = [
        *sweep,
        f"data.path={tokens_of('wordpiece')}",
        "tokenizer=char",
        f"run.dir={tmp_path / 'run'}",
        "size=tiny",
    ]
    result = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert result.exit_code == 2
    assert "tokenizer='char'" in result.output + result.stderr
    assert not list(tmp_path.rglob("config.yaml"))


def test_held_out_rows_of_tokens(tokens_of: TokensOf) -> None:
    cfg = compose("pretrain", "bert", [f"data.path={tokens_of('wordpiece')}"])
    cfg = cfg.replace({"data.lines": "wrapped"})
    refuse_decided(cfg, ["data.path"])  # the run's own
    with pytest.raises(ConfigError, match=r"data\.lines='wrapped'"):
        refuse_decided(cfg, ["data.lines"])
