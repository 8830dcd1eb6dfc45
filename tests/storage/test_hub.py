"""`hf:<name>[@revision]`: the local cache of the hub, and the command that fills it."""

from __future__ import annotations

import importlib
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from plmctl.artifacts.loading import load, open_source
from plmctl.core.errors import DataError, UsageError
from plmctl.storage.hub import HubName, find_hub_cache, find_hub_model
from tests.interop.publishing import publish

COMMIT = "1dbc166cf8765166998eff31ade2eb64c8a40076"


def fill(cache: Path, name: str, files: Path, *, ref: str = "main", kind: str = "model") -> Path:
    """`files` in the layout of the cache: links into blobs/, as `hf download` makes them."""
    home = cache / f"{kind}s--{name.replace('/', '--')}"
    snapshot = home / "snapshots" / COMMIT
    for folder in (home / "blobs", snapshot, (home / "refs" / ref).parent):
        folder.mkdir(parents=True, exist_ok=True)
    (home / "refs" / ref).write_text(COMMIT)
    for number, file in enumerate(sorted(file for file in files.iterdir() if file.is_file())):
        shutil.copy(file, home / "blobs" / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs", str(number)))
    return snapshot


@pytest.mark.parametrize("variable", ["HF_HOME", "HF_HUB_CACHE", "XDG_CACHE_HOME"])
def test_the_cache_is_that_of_the_library(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    wanted = {"HF_HOME": "hub", "HF_HUB_CACHE": "", "XDG_CACHE_HOME": "huggingface/hub"}
    assert find_hub_cache() == tmp_path / wanted[variable]


def test_a_downloaded_model_is_opened_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, folder = publish(tmp_path / "published", "BertModel")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = fill(tmp_path / "hub", "some/bert", folder)
    same = load(folder).model.state_dict()
    for name in ("hf:some/bert", "hf:some/bert@main", f"hf:some/bert@{COMMIT}"):
        assert open_source(name).folder == snapshot
    assert all((same[key] == value).all() for key, value in load(name).model.state_dict().items())
    proposed = snapshot.parents[1] / "refs/refs/pr/1"
    proposed.parent.mkdir(parents=True)
    proposed.write_text(COMMIT)
    for wrong in ("v1", COMMIT[:7]):
        said = (
            rf"has no revision {wrong}.*; it has main, refs/pr/1\n.* some/bert --revision {wrong}$"
        )
        with pytest.raises(DataError, match=said):
            load(f"hf:some/bert@{wrong}")
    with pytest.raises(DataError, match=r"give hf:some/bert, which is in the local cache"):
        load("some/bert")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("hf:google-bert/bert-base-uncased", "google-bert/bert-base-uncased"),
        ("hf:gpt2", "gpt2"),
        ("hf:a/b@v1.0", "a/b --revision v1.0"),
        ("hf:a/b@refs/pr/3", "a/b --revision refs/pr/3"),
    ],
)
def test_a_missing_model_names_the_command_that_downloads_it(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(DataError, match=f"fix: hf download {words}$"):
        find_hub_model(name)
    # the installed program takes these words
    taken: dict[str, Any] = {}
    cli = pytest.importorskip("huggingface_hub.cli.hf")
    download = importlib.import_module("huggingface_hub.cli.download")
    monkeypatch.setattr(download, "snapshot_download", lambda **given: taken.update(given) or ".")
    cli.app.main(shlex.split(HubName.parse(name).download)[1:], standalone_mode=False)
    parsed = HubName.parse(name)
    assert (taken["repo_id"], taken["revision"] or "main") == (parsed.name, parsed.revision)


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c", "hf:../x", "hf:a/b@", "hf:a/b@../../x"])
def test_no_name_leads_out_of_the_cache(name: str) -> None:
    with pytest.raises(UsageError, match="fix: checkpoint=hf:google-bert"):
        find_hub_model(name)
