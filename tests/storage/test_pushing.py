"""`convert --push`: what a hub on this machine receives, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from plmctl.artifacts.loading import load
from plmctl.core.errors import DataError, PlmctlError
from plmctl.storage.pushing import Push
from tests.command import plmctl
from tests.interop.publishing import publish
from tests.storage.fake_hub import TOKEN, FakeHub, serve_hub

library = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """An empty hub, whose owner `ada` is logged in."""
    with serve_hub() as served:
        monkeypatch.setattr(constants, "ENDPOINT", served.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "1_Pooling").mkdir(parents=True)
    (made / "README.md").write_text("---\ntags: [plmctl]\n---\n# made\n")
    (made / "1_Pooling/config.json").write_text("{}")
    return made


def test_a_pushed_model_comes_back_by_its_name_and_revision(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, source = publish(tmp_path / "published", "BertModel")
    words = ("convert", str(source), "--to", "plmctl", "--push", "ada/tiny")
    shown = plmctl(*words, "--private", "--dry-run")
    assert hub.requests == []
    assert all(word in shown for word in ("model.safetensors", f"{hub.url}/ada/tiny (private, "))
    plmctl(*words, "--private", "--out", str(tmp_path / "out"))
    commit, files = hub.find("ada/tiny")
    assert hub.private["ada/tiny"]
    written = [file for file in (tmp_path / "out").rglob("*") if file.is_file()]
    assert {str(file.relative_to(tmp_path / "out")) for file in written} <= {*files}
    assert f"{files.keys() - {'.gitattributes'}}".count("'") / 2 == len(written)
    assert b"library_name: plmctl" in files["README.md"]
    hub.refs["ada/tiny"]["v1"] = commit
    hub.commit("ada/tiny", {})
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    fetch = partial(library.snapshot_download, "ada/tiny", token=TOKEN, endpoint=hub.url)
    fetch(revision="v1", cache_dir=tmp_path / "cache")
    same = load("hf:ada/tiny@v1").model.state_dict()
    assert all((same[name] == t).all() for name, t in load(source).model.state_dict().items())


def test_an_existing_repository_is_replaced_only_by_overwrite(hub: FakeHub, folder: Path) -> None:
    hub.create("ada/made")
    before = hub.commit("ada/made", {"pytorch_model.bin": b"old", ".gitattributes": b"x"})
    for refused in (Push("ada/made").refuse, partial(Push("ada/made").send, folder)):
        with pytest.raises(PlmctlError, match=r"(?s)has a repository of this name.*--overwrite"):
            refused()
    assert hub.find("ada/made")[0] == before
    Push("ada/made", overwrite=True).deliver(lambda place: folder.rename(place), str, None)
    assert {*hub.find("ada/made")[1]} == {".gitattributes", "README.md", "1_Pooling/config.json"}


@pytest.mark.parametrize(
    ("token", "name", "said"),
    [
        ("hf_bad", "ada/made", r"refuses the token.*\n  fix: export HF_TOKEN=TOKEN"),
        (TOKEN, "bob/made", "the token of this machine may not write there"),
        (None, "ada/made", r"no token of the hub\n  fix: hf auth login$"),
    ],
)
def test_a_push_without_the_right_says_how_to_log_in(
    token: str | None,
    name: str,
    said: str,
    hub: FakeHub,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "no_token"))
    monkeypatch.setenv("HF_TOKEN", token) if token else monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(PlmctlError, match=said) as error:
        Push(name).deliver(lambda place: folder.rename(place), str, None)
    assert (error.value.exit_code, hub.commits) == (2, {})


def test_a_hub_that_is_not_reached_leaves_the_command_that_repeats_the_push(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(PlmctlError, match=r"fix: hf upload ada/made \S+made  # ") as error:
        Push("ada/made").send(folder)
    assert error.value.exit_code == 1
    assert not isinstance(error.value, DataError)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--push", "made"), "fix: --push OWNER/made"),
        (("--push", "hf:ada/made"), "fix: --push ada/made"),
        (("--push", "ada/a--b"), "fix: --push OWNER/a-b"),
        (("--private", "--out", "x"), "fix: --push OWNER/NAME --private"),
        (("--to", "onnx", "--fact", "license=mit", "--out", "x"), "--to sentence-transformers"),
        (("--dry-run", "--out", "x"), "fix: --push OWNER/NAME --dry-run"),
    ],
)
def test_wrong_words_of_a_push(words: tuple[str, ...], said: str) -> None:
    assert said in plmctl("convert", "run", "--to", "hf", *words, code=2)
