"""A run is decided once: its spec is frozen, saved as it is, and two models are built for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.saved import read_spec, write_spec
from plmctl.config.spec import Part, thaw
from plmctl.core.errors import UsageError
from plmctl.models.base import Model
from plmctl.runs.resolve import resolve_pretraining

SMALL = ["size=tiny", "size.width=32", "size.inner_width=64", "train.device=cpu", "train.steps=1"]


def test_a_spec_is_never_written_to() -> None:
    spec = compose("pretrain", "bert", SMALL)
    with pytest.raises(FrozenInstanceError):
        spec.train.steps = 2
    with pytest.raises(AttributeError, match="a spec is never written to"):
        spec.optim.lr = 2
    changed = spec.replace({"train.steps": 2, "optim.lr": 0.5, "noise.new.part": {"a": [1]}})
    assert (changed.train.steps, changed.optim.lr, changed.noise.new.part.a) == (2, 0.5, (1,))
    assert spec.train.steps == 1
    assert isinstance(changed.noise.new, Part)
    with pytest.raises(KeyError):
        spec.replace({"trian.steps": 2})


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    spec = compose("pretrain", "bert", SMALL)
    write_spec(spec, tmp_path)
    assert thaw(read_spec(tmp_path)) == thaw(spec)


def test_settings_without_effect_are_not_saved(tmp_path: Path) -> None:
    """What is read again has null in their place, and trains and resumes the same."""
    words = ["task=sst2", "task.path=x", "beside.mrpc={task: mrpc, path: y}"]
    for given, unused in (
        (["checkpoint=y"], set()),
        (["checkpoint=null"], {"tokenizer"}),
        (["checkpoint=null", words[2]], {"tokenizer", "mixing"}),
    ):
        spec = compose("finetune", None, [*words[:2], *given])
        write_spec(spec, tmp_path)
        saved = yaml.safe_load((tmp_path / "config.yaml").read_text(encoding="utf-8"))
        assert {"tokenizer", "mixing"} & saved.keys() == unused
        again = read_spec(tmp_path)
        assert again is not None
        assert again.used() == spec.used()


@pytest.mark.parametrize("verb", ["eval", "attack", "check", "augment", "mine", "rarify"])
def test_a_command_without_training_shows_no_settings_of_one(verb: str) -> None:
    given = ["task.path=x"]
    given += {"rarify": ["out=o"], "mine": ["out=o"], "augment": ["out=o"]}.get(verb, [])
    given += ["checkpoint=x"] if verb in ("eval", "attack", "augment") else []
    spec = compose(verb, None, ["task=sst2", *given])
    assert not {"heads", "optim", "schedule", "train"} & spec.used().keys()
    assert "task" in spec.used()
    for word in ("train.batch_size=4", "optim.lr=1e-3", "schedule=constant"):
        with pytest.raises(UsageError, match="trains nothing"):
            compose(verb, None, ["task=sst2", *given, word])


def test_a_folder_without_a_version_is_read(tmp_path: Path) -> None:
    """As they were written before specs had one."""
    spec = compose("finetune", None, ["task=sst2", "task.path=x", "checkpoint=y"])
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(thaw(spec)), encoding="utf-8")
    assert thaw(read_spec(tmp_path)) == thaw(spec)


def test_one_model_without_weights_and_one_with_them(
    tokens_of: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    first = Model.__init__

    def counted(self: Model, **parts: object) -> None:
        first(self, **parts)  # type: ignore[arg-type]
        built.append(str(next(self.parameters()).device))

    monkeypatch.setattr(Model, "__init__", counted)
    words = ["pretrain", "bert", *SMALL, f"data.path={tokens_of('wordpiece')}"]
    done = CliRunner().invoke(make_app(), [*words, f"run.dir={tmp_path / 'run'}"])
    assert done.exit_code == 0, done.output
    assert built == ["meta", "cpu"]
    built.clear()
    shown = CliRunner().invoke(make_app(), [*words, "run.dir=there", "--dry-run", "--json"])
    assert shown.exit_code == 0
    assert built == ["meta"]
    run = json.loads(shown.stdout)["run"]
    assert run["run.dir"] == "there"
    assert run["precision"] == read_spec(tmp_path / "run").train.precision != "auto"


def test_what_a_run_leaves_open_is_decided_before_it_starts() -> None:
    spec = compose("pretrain", "bert", [*SMALL, "run.name=mine"])
    assert (spec.train.precision, spec.run.dir) == ("auto", None)
    decided, model, _ = resolve_pretraining(spec)
    assert decided.train.precision in ("fp32", "bf16")
    assert Path(decided.run.dir).parent == Path("runs/mine")
    assert model is not None
    assert (spec.train.precision, spec.run.dir) == ("auto", None)
