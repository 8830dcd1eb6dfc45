"""Settings that a token directory has decided are refused where the user gives them, and passed
over where a recipe does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import ConfigError, ConfigErrors
from plmctl.run.compose import compose
from plmctl.run.token_settings import refuse_decided

TokensOf = Callable[..., Path]
FIX = "\n  fix: leave it out, or give the text in place of its tokens"


def refuse(recipe: str, *words: str) -> None:
    cfg = compose("pretrain", recipe, words)
    refuse_decided(cfg, cfg.provenance.keys)


def test_a_recipe_may_name_another_tokenizer(tokens_of: TokensOf) -> None:
    refuse("roberta", f"data.path={tokens_of('wordpiece')}", "size=mini", "train.minutes=60")


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
    with pytest.raises(ConfigErrors) as errors:
        refuse("bert", f"data.path={tokens}", *words)
    decided = f"the tokens of {tokens} decide this"
    assert [str(error) for error in errors.value.errors] == [
        f"tokenizer='unigram': {decided}: wordpiece{FIX}",
        f"tokenizer.vocab_size=99: {decided}: 600{FIX}",
        f"data.valid_path='x.txt': {decided}{FIX}",
        f"data.valid_share=0.5: {decided}: 0.1{FIX}",
        f"data.field='body': {decided}: text{FIX}",
        f"data.lines='wrapped': {decided}: auto{FIX}",
        f"data.segment='jieba': {decided}: None{FIX}",
    ]


def test_what_the_tokens_were_made_with_may_be_said_again(tokens_of: TokensOf) -> None:
    tokens = tokens_of("wordpiece")
    refuse(
        "bert",
        f"data.path={tokens}",
        "tokenizer=wordpiece",
        "tokenizer.vocab_size=600",
        "data.valid_share=0.1",
    )
    # as of a text: idle
    refuse("bert", f"data.path={tokens}", f"tokenizer.path={tokens}", "tokenizer.vocab_size=99")


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
    with pytest.raises(ConfigError, match=told):
        refuse("bert", f"data.path={tmp_path / 'tokens'}", "tokenizer.vocab_size=600")


def test_a_text_beside_tokens_is_still_read_as_the_user_says(
    tokens_of: TokensOf, small_text: Path
) -> None:
    mixed = [f"data.mixture.a.path={tokens_of('wordpiece')}", f"data.mixture.b.path={small_text}"]
    refuse("bert", *mixed, "data.lines=wrapped")
    with pytest.raises(ConfigError, match="tokenizer='bpe'"):
        refuse("bert", *mixed, "tokenizer=bpe")


@pytest.mark.parametrize(("sweep", "code"), [([], 2), (["-m"], 1)])
def test_the_command_refuses_before_it_writes(
    tokens_of: TokensOf, tmp_path: Path, sweep: list[str], code: int
) -> None:
    words = [
        *sweep,
        f"data.path={tokens_of('wordpiece')}",
        "tokenizer=char",
        f"run.dir={tmp_path / 'run'}",
        "size=tiny",
    ]
    result = CliRunner().invoke(make_app(), ["pretrain", "bert", *words])
    assert result.exit_code == code
    assert "tokenizer='char'" in result.output + result.stderr
    assert not list(tmp_path.rglob("config.yaml"))


def test_held_out_rows_of_tokens(tokens_of: TokensOf) -> None:
    cfg = compose("pretrain", "bert", [f"data.path={tokens_of('wordpiece')}"])
    cfg = cfg.replace({"data.lines": "wrapped"})
    refuse_decided(cfg, ["data.path"])  # the run's own
    with pytest.raises(ConfigError, match=r"data\.lines='wrapped'"):
        refuse_decided(cfg, ["data.lines"])
