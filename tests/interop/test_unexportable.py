"""Whether a model can leave plmctl is said at the end of its training, by what the export knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.interop.big_bird import BigBirdFamily

TEXT = "the cat sees a bird and the dog likes a river. the sun runs behind the house. "
SMALL = ("size=tiny", "train.minutes=null", "train.steps=1", "train.batch_size=4")
ROWS = ("format.max_length=16", "eval.rows=8", "tokenizer.vocab_size=64", "train.log_every=1")


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(make_app(), list(words))
    assert done.exit_code == code, done.output
    return str(done.stderr)


@pytest.mark.parametrize(
    ("recipe", "own", "leaves"),
    [("modern_encoder", (), False), ("bert", (), True), ("bert", ("position=rotary",), False)],
)
def test_the_end_of_a_training_says_whether_transformers_reads_it(
    recipe: str, own: tuple[str, ...], leaves: bool, tmp_path: Path
) -> None:
    text, folder, out = tmp_path / "text.txt", tmp_path / "run", tmp_path / "out"
    text.write_text("\n\n".join([TEXT * 3] * 40), encoding="utf-8")
    said = run("pretrain", recipe, *SMALL, *ROWS, *own, f"data.path={text}", f"run.dir={folder}")
    assert ("transformers has no class for this model" in said) is not leaves
    # the export itself says the same
    run("convert", str(folder), "--to", "hf", "--out", str(out), code=0 if leaves else 2)


def test_big_bird_says_at_which_lengths_its_answers_differ() -> None:
    family = BigBirdFamily()
    settings = {
        **{"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        **{"intermediate_size": 32, "max_position_embeddings": 4096, "type_vocab_size": 2},
        **{"attention_type": "block_sparse", "block_size": 64, "num_random_blocks": 3},
    }
    line = family.describe_reading(family.numbers(settings))
    assert "rows over 704 tokens" in line  # 5 + 2 * 3 blocks of 64 (transformers' own limit)
    for other in (
        {"attention_type": "original_full"},
        {"max_position_embeddings": 704},
        {"block_size": 512},
    ):
        assert family.describe_reading(family.numbers({**settings, **other})) == ""
