"""Which settings the user wrote, and which shipped files brought."""

from __future__ import annotations

from pathlib import Path

from plmctl.config.asked import is_asked
from plmctl.config.spec import Provenance

SIZE = "tokenizer.vocab_size"


def test_what_stands_on_the_command_line_or_in_a_file_of_the_user(tmp_path: Path) -> None:
    assert not is_asked(Provenance("pretrain", "bert"), SIZE)
    assert not is_asked(Provenance("pretrain", "bert", ("tokenizer=bpe",)), SIZE)
    assert is_asked(Provenance("pretrain", "bert", (f"{SIZE}=9",)), SIZE)
    mine = tmp_path / "mine.yaml"
    mine.write_text("defaults: [bert]\ntokenizer: {vocab_size: 9}\n", encoding="utf-8")
    assert is_asked(Provenance("pretrain", str(mine)), SIZE)
    assert not is_asked(Provenance("pretrain", str(mine)), "task.max_length")


def test_the_config_of_a_job_is_what_was_asked_for() -> None:
    assert is_asked(Provenance("pretrain", within=True), SIZE)
    assert not is_asked(Provenance("pretrain", overrides=("size=tiny",), within=True), SIZE)
