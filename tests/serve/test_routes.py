"""The addresses of a server: the published forms, the answers of the Python face, refusals."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import plmctl
from plmctl.core.batch import Batch
from plmctl.core.errors import UsageError
from plmctl.runtime.base import Answer, Program
from plmctl.runtime.eager import EagerRuntime
from plmctl.serve.models import Models, name_models
from plmctl.tasks.record import Example
from plmctl.use.labeller import open_linear
from tests.command import plmctl as command_line
from tests.serve.served import open_all, serve

TEXTS = ["a fine film", "poor", "an awful awful film film film", "好 看"]


@pytest.fixture(scope="module")
def client(models: Models) -> Any:
    with serve(models) as client:
        yield client


def post(client: TestClient, path: str, status: int = 200, **body: Any) -> Any:
    reply = client.post(path, json=body)
    assert reply.status_code == status, reply.text
    assert "Traceback" not in reply.text
    return reply.json()


def test_labels_are_those_of_the_python_face(client: TestClient, folder: Path) -> None:
    found = post(client, "/predict", inputs=TEXTS)
    for ranked, own in zip(found, plmctl.load(folder / "films").predict(TEXTS), strict=True):
        assert {each["label"]: each["score"] for each in ranked} == own["probabilities"]
        assert ranked[0]["label"] == own["guess"]
        assert ranked[0]["score"] >= ranked[1]["score"]


def test_simple_models_answer_next_to_others(folder: Path) -> None:
    place = folder / "films" / "baselines" / "words"
    models = open_all([folder / "films", place])
    assert [each.list_abilities() for each in models][1] == ["task classification"]
    labeller = open_linear(place, ())
    examples = [Example(str(n), {"text": text}) for n, text in enumerate(TEXTS)]
    wanted = labeller.model.answer(labeller.task, examples)
    for each in models:
        each.warm_up()
    with serve(models) as client:
        found = post(client, "/predict", inputs=TEXTS, model="words")
        assert post(client, "/predict", inputs=TEXTS) != found
        post(client, "/embed", 424, inputs=TEXTS, model="words")
        (_, own) = client.get("/info").json()["models"]
        assert (own["max_model_len"], "max_length" in own) == (None, False)
    for ranked, own in zip(found, wanted, strict=True):
        assert {each["label"]: each["score"] for each in ranked} == own["probabilities"]
        assert ranked[0]["label"] == own["guess"]


def test_texts_below_a_named_probability_are_unsure(folder: Path) -> None:
    names = ["films", "films/baselines/words", "lora_one", "lora_two", "numbers"]
    models = open_all([folder / name for name in names], unsure_below=1.0)
    with serve(models) as client:
        for name in models.by_name:
            texts = [["a", "fine film"]] if name in ("lora_two", "numbers") else ["a fine film"]
            reply = client.post("/predict", json={"inputs": texts, "model": name})
            assert reply.headers.get("x-unsure") == (None if name == "numbers" else "0"), name


def test_texts_that_are_not_read_are_unsure_where_there_is_a_bound(folder: Path) -> None:
    names = ["films", "films/baselines/words", "lora_one"]
    models = open_all([folder / name for name in names], unsure_below=1e-9)
    with serve(models) as client:
        for name in models.by_name:
            reply = client.post("/predict", json={"inputs": ["a fine film", "  "], "model": name})
            marks = {own: reply.headers.get(own) for own in ("x-unknown", "x-unsure")}
            assert marks == {"x-unknown": "1", "x-unsure": "1"}, name


def test_a_runtime_is_ready_before_the_first_request(folder: Path) -> None:
    prepared: list[Program] = []

    class Counting(EagerRuntime):
        def prepare(self, program: Program, sample: Batch) -> Answer:
            prepared.append(program)
            return program

    names = ["films", "pairs", "tags", "fills"]
    models = open_all([folder / name for name in names], runtime=lambda *_, **__: Counting())
    for each in models:
        each.warm_up()
    assert len(prepared) == 3, "each model with a task"
    with serve(models) as client:
        for name, item in {"films": "a fine film", "pairs": ("a", "poor film")}.items():
            assert post(client, "/predict", inputs=[item], model=name)
    assert len(prepared) == 3


@pytest.mark.parametrize(("path", "model"), [("predict", "films"), ("embed", "films")])
def test_long_texts_do_not_pad_short_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch, path: str, model: str
) -> None:
    assert_little_padding(open_all([folder / "films"], rows=16), monkeypatch, path, model)


def test_long_texts_do_not_pad_short_ones_of_adapters(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = open_all([folder / "lora_one", folder / "lora_two"], rows=16)
    assert_little_padding(models, monkeypatch, "predict", "lora_one")


def assert_little_padding(
    models: Models, monkeypatch: pytest.MonkeyPatch, path: str, model: str
) -> None:
    """Twelve long texts and twelve short ones of one request are a batch each."""
    shapes, move = list[tuple[int, ...]](), Batch.to

    def note(batch: Batch, *words: Any) -> Batch:
        shapes.append(tuple(batch.text.ids.shape))
        return move(batch, *words)

    monkeypatch.setattr(Batch, "to", note)
    with serve(models) as client:
        post(client, f"/{path}", inputs=["a fine film", "film " * 20] * 12, model=model)
    assert [rows for rows, _ in shapes] == [12, 12]
    assert shapes[0][1] > 20 > 10 > shapes[1][1]


@pytest.mark.parametrize(
    ("model", "inputs", "items"),
    [
        ("films", "poor", ["poor"]),
        ("films", [["poor"], ["a film"]], ["poor", "a film"]),
        ("films", {"text": "poor\tfilm"}, [{"text": "poor\tfilm"}]),
        ("pairs", ["a film", "poor"], [("a film", "poor")]),
        ("pairs", [["a film", "poor"], ["b", "a\tb"]], [("a film", "poor"), ("b", "a\tb")]),
        ("pairs", [{"text": "a", "text2": "b"}], [("a", "b")]),
        ("numbers", [["a", "b"]], [("a", "b")]),
        ("tags", ["a fine film"], ["a fine film"]),
        ("lora_one", ["poor", "film"], ["poor", "film"]),
        ("lora_two", [["a film", "poor"]], [("a film", "poor")]),
    ],
)
def test_every_form_of_input(
    client: TestClient, folder: Path, model: str, inputs: Any, items: list[Any]
) -> None:
    found = post(client, "/predict", inputs=inputs, model=model)
    rows = plmctl.load(folder / model).predict(items)
    alone = isinstance(inputs, str | dict) or (model == "pairs" and isinstance(inputs[0], str))
    for answer, own in zip([found] if alone else found, rows, strict=True):
        if isinstance(answer, list):  # of labels
            shares = {each["label"]: each["score"] for each in answer}
            assert shares == pytest.approx(own["probabilities"], abs=2e-6)
        else:
            assert answer["guess"] == pytest.approx(own["guess"], abs=1e-5)


def test_adapters_of_one_base_are_answered_in_one_batch(models: Models) -> None:
    one, two = (models.by_name[name] for name in ("lora_one", "lora_two"))
    engine = one.labels
    assert engine is two.labels is not None
    assert engine is not models.by_name["films"].labels
    first = engine.read("lora_one", TEXTS)
    second = engine.read("lora_two", [("a", text) for text in TEXTS])
    mixed = [question.content for pair in zip(first, second, strict=True) for question in pair]
    together = engine.answer(mixed)
    alone = [engine.answer([content])[0] for content in mixed]
    for mine, own in zip(together, alone, strict=True):
        assert mine["guess"] == own["guess"]
        assert mine["probabilities"] == pytest.approx(own["probabilities"], abs=2e-6)


def test_vectors_have_length_1_and_are_those_of_embed(client: TestClient, folder: Path) -> None:
    own = plmctl.load(folder / "films").embed(TEXTS, normalize=True)
    assert np.array(post(client, "/embed", inputs=TEXTS)) == pytest.approx(own, abs=1e-6)
    short = np.array(post(client, "/embed", inputs=TEXTS[:1], dimensions=5))
    assert short[0] == pytest.approx(own[0, :5] / np.linalg.norm(own[0, :5]), abs=1e-6)


def test_embeddings_in_the_form_of_openai(client: TestClient, folder: Path) -> None:
    model = plmctl.load(folder / "films")
    own = model.embed(TEXTS, normalize=True)
    found = post(client, "/v1/embeddings", input=TEXTS, model="films")
    assert [each["index"] for each in found["data"]] == [0, 1, 2, 3]
    assert np.array([each["embedding"] for each in found["data"]]) == pytest.approx(own, abs=1e-6)
    ids = model.encode(TEXTS)
    assert found["usage"]["prompt_tokens"] == sum(map(len, ids))
    for given in (ids, ids[0]):  # several texts, or one, as numbers of tokens
        again = post(client, "/v1/embeddings", input=given)["data"]
        assert again[0]["embedding"] == pytest.approx(own[0], abs=1e-6)
    packed = post(client, "/v1/embeddings", input=TEXTS, encoding_format="base64")["data"]
    numbers = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in packed]
    assert np.array(numbers) == pytest.approx(own, abs=1e-6)


def test_classes_and_ranks_in_the_form_of_vllm(client: TestClient) -> None:
    found = post(client, "/classify", input=TEXTS)["data"]
    assert [each["num_classes"] for each in found] == [2] * 4
    assert all(sum(each["probs"]) == pytest.approx(1, abs=1e-4) for each in found)
    ranked = post(client, "/v1/rerank", query="poor", documents=["film", "poor"], top_n=1)
    assert ranked["results"][0]["index"] == 1
    assert ranked["results"][0]["relevance_score"] == pytest.approx(1, abs=1e-5)
    assert ranked["results"][0]["document"] == {"text": "poor"}
    assert ranked["model"] == "films"
    texts = ["film", "poor", "fine film"]
    order = post(client, "/rerank", query="poor", texts=texts, return_text=True)
    assert [each["text"] for each in order] == [texts[each["index"]] for each in order]
    assert [each["score"] for each in order] == sorted((e["score"] for e in order), reverse=True)


def test_words_get_tags(client: TestClient) -> None:
    found = post(client, "/tag", inputs="a fine film")
    assert found["words"] == ["a", "fine", "film"]
    assert len(found["tags"]) == 3
    text, inside = "a fine film", [tag != "O" for tag in found["tags"]]
    assert all(text[each["start"] : each["end"]] == each["text"] for each in found["entities"])
    assert bool(found["entities"]) == any(inside)
    assert post(client, "/tag", inputs=["a fine film"])[0] == found


def test_cut_texts_and_lengths_are_named(client: TestClient) -> None:
    texts = ["a fine film", "a fine film " * 400]
    reply = client.post("/predict", json={"inputs": texts, "model": "films"})
    assert reply.headers["x-truncated"] == "1"
    assert [{each["label"] for each in own} for own in reply.json()] == [{"a", "b"}] * 2
    assert "x-truncated" not in client.post("/predict", json={"inputs": texts[:1]}).headers
    for path, body in (
        ("/embed", {"inputs": texts}),
        ("/v1/embeddings", {"input": texts}),
        ("/classify", {"input": texts, "model": "films"}),
        ("/rerank", {"query": "film", "texts": texts}),
    ):
        assert client.post(path, json=body).headers["x-truncated"] == "1", path
    (own,) = [each for each in client.get("/info").json()["models"] if "max_length" in each][:1]
    assert Path(own["path"]).name == own["id"]
    listed = {each["id"]: each for each in client.get("/v1/models").json()["data"]}
    assert own["max_model_len"] == listed[own["id"]]["max_model_len"] >= own["max_length"] > 0


def test_texts_that_say_nothing_to_the_model_are_named(client: TestClient) -> None:
    texts = ["a fine film", "  "]
    for path, body in (
        ("/predict", {"inputs": texts, "model": "films"}),
        ("/embed", {"inputs": texts}),
        ("/v1/embeddings", {"input": texts}),
        ("/classify", {"input": texts, "model": "films"}),
        ("/rerank", {"query": "film", "texts": texts}),
        ("/v1/rerank", {"query": "film", "documents": texts}),
    ):
        reply = client.post(path, json=body)
        assert reply.headers["x-unknown"] == "1", path
        found = reply.json()
        answers = found if isinstance(found, list) else found.get("data", found.get("results"))
        objects = {each["index"]: each for each in answers if isinstance(each, dict)}
        marked = {number: own["unknown"] for number, own in objects.items() if "unknown" in own}
        assert marked == ({1: 1} if objects else {}), path
    assert "x-unknown" not in client.post("/predict", json={"inputs": texts[:1]}).headers
    assert [each.get("unknown") for each in post(client, "/tag", inputs=texts)] == [None, 1]
    pair = {"inputs": [["a", "a film"], ["a", ""]], "model": "numbers"}
    reply = client.post("/predict", json=pair)
    assert reply.headers["x-unknown"] == "1"
    assert [each.get("unknown") for each in reply.json()] == [None, 1]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/predict", {"inputs": []}, 400, "no text"),
        ("/predict", {"inputs": "x", "model": "film"}, 404, "did you mean 'films'"),
        ("/predict", {"inputs": "x", "model": "pairs"}, 422, "pairs of texts"),
        ("/predict", {"inputs": [["a", "b"]], "model": "films"}, 422, "single texts"),
        ("/predict", {"inputs": {"words": "x"}, "model": "films"}, 422, "no field text"),
        ("/predict", {"inputs": 3}, 422, "inputs: a text or an object or a list is needed, not 3"),
        ("/predict", {"inputs": ["a", None]}, 422, "inputs[1]: a text or an object or a list is"),
        ("/predict", {"inputs": [["a", 3]]}, 422, "inputs[0][1]: a text is needed, not 3"),
        ("/predict", {"inputs": "a", "top_k": "x"}, 422, "top_k: a whole number is needed"),
        ("/predict", {"inputs": "a", "top_k": 0}, 422, "top_k: Input should be greater than"),
        ("/embed", {"inputs": {"text": "a"}}, 422, 'a text or a list is needed, not {"text": "a"}'),
        ("/predict", {"inputs": [["a", "b", "c"]], "model": "pairs"}, 422, "2 texts together"),
        ("/predict", {"inputs": "x", "modle": "films"}, 422, "no field 'modle'"),
        ("/predict", {}, 422, "there is no field 'inputs', which /predict needs"),
        ("/predict", {"input": "x"}, 422, "which /predict needs; found input"),
        ("/predict", {"inputs": ["x"] * 10}, 422, "10 texts, at most 9"),
        ("/tag", {"inputs": "x", "model": "films"}, 424, "the model films cannot tag words"),
        ("/fill", {"inputs": "x"}, 424, "no model here can fill masks"),
        ("/generate", {"inputs": "x"}, 424, "no model here can write texts"),
        ("/generate", {"inputs": "x", "max_new": 10**6}, 422, "at most 512"),
        ("/generate", {"inputs": "x", "search": {"a=b": 1}}, 422, "a=b"),
        ("/embed", {"inputs": "x", "dimensions": 10**6}, 422, "vectors of this model have"),
        ("/embed", {"inputs": "a " * 50_000, "truncate": False}, 422, "more tokens"),
        ("/nothing", {}, 404, "/predict"),
        ("/predikt", {}, 404, "did you mean '/predict'"),
    ],
)
def test_refusals(models: Models, path: str, body: Any, status: int, words: str) -> None:
    with serve(models, texts=9) as client:
        found = post(client, path, status, **body)
    assert words in found["error"]
    assert found["error_type"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"input": 3}, 400, "input"),
        ({"input": []}, 400, "no text"),
        ({"input": [[1], [10**6]]}, 422, "token 1000000"),
        ({"input": "x", "encoding_format": "hex"}, 400, "encoding_format"),
        ({"input": "x", "model": "gpt-4"}, 404, "there are films"),
    ],
)
def test_refusals_in_the_form_of_openai(
    client: TestClient, body: Any, status: int, words: str
) -> None:
    error = post(client, "/v1/embeddings", status, **body)["error"]
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (b'{"inputs":"x"}', "text/plain", "with the header 'content-type: application/json'"),
        (b"", "application/json", "the body is empty"),
        (b'{"inputs":', "application/json", "no JSON"),
        (b'{"inputs":"\xff\xfe"}', "application/json", "no JSON"),
        (b"[" * 100_000, "application/json", "no JSON"),
        (b"[1]", "application/json", "must be a JSON object"),
    ],
)
def test_a_body_that_is_no_request(
    client: TestClient, content: bytes, kind: str, words: str
) -> None:
    reply = client.post("/predict", content=content, headers={"content-type": kind})
    assert reply.status_code in (400, 422), reply.text
    error = reply.json()["error"]
    assert words in error
    assert "function" not in error
    assert "dict" not in error


def test_half_a_surrogate_pair_is_answered(client: TestClient) -> None:
    broken = rb'{"inputs": ["\ud83d film", "film"]}'
    for path in ("/predict", "/embed", "/tag"):
        reply = client.post(path, content=broken, headers={"content-type": "application/json"})
        assert reply.status_code == 200, reply.text


def test_a_body_that_is_too_long_is_refused(models: Models) -> None:
    with serve(models, body=500) as client:
        assert "500 bytes" in post(client, "/predict", 413, inputs="x" * 600)["error"]
        parts = iter([b'{"inputs": "', b"x" * 300, b"x" * 300, b'"}'])  # without a stated length
        kind = {"content-type": "application/json"}
        reply = client.post("/predict", content=parts, headers=kind)
        assert reply.status_code == 413, reply.text
        assert post(client, "/predict", inputs="x" * 100)


def test_clients_without_the_token_are_refused(models: Models) -> None:
    with serve(models, token="secret word") as client:
        for given in ({}, {"authorization": "Bearer secret"}, {"authorization": "secret word"}):
            reply = client.post("/predict", json={"inputs": "x"}, headers=given)
            assert reply.status_code == 401
            assert reply.headers["www-authenticate"] == "Bearer"
            assert client.get("/metrics", headers=given).status_code == 401
        error = client.post("/v1/embeddings", json={"input": "x"}).json()["error"]
        assert error["type"] == "authentication_error"
        assert client.get("/health").status_code == client.get("/v1/models").status_code == 200
        right = {"authorization": "Bearer secret word"}
        assert client.post("/predict", json={"inputs": "x"}, headers=right).status_code == 200


def test_metrics_count_requests_and_hold_no_text(models: Models) -> None:
    with serve(models) as client:
        post(client, "/predict", inputs=["strange words", "x"])
        client.get("/secret-path")
        text = client.get("/metrics").text
    assert 'plmctl_requests_total{code="200",route="/predict"} 1.0' in text
    assert 'plmctl_requests_total{code="404",route="other"} 1.0' in text
    assert 'plmctl_batch_size_sum{engine="labels"} 2.0' in text
    assert "strange" not in text
    assert "secret" not in text
    assert sum(count_lines(text, "plmctl_labelled_texts_total")) == 2


def test_metrics_count_labels_and_marks_of_each_model(models: Models) -> None:
    with serve(models) as client:
        body = {"inputs": ["a fine film", "a bad film", "  "], "model": "films"}
        found = client.post("/predict", json=body).json()
        text = client.get("/metrics").text
    assert len(found) == 3
    assert count_lines(text, 'plmctl_labelled_texts_total{model="films"}') == [3]
    assert sum(count_lines(text, "plmctl_labels_total{")) == 3
    assert count_lines(text, 'plmctl_marked_texts_total{mark="unknown",model="films"}') == [1]


def count_lines(text: str, start: str) -> list[float]:
    """The numbers of the lines of Prometheus that begin so."""
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(start)]


def test_a_mistake_of_ours_shows_no_traceback(models: Models, monkeypatch: Any) -> None:
    def fail(questions: Any) -> Any:
        raise RuntimeError("a secret of the machine")

    monkeypatch.setattr(models.by_name["films"].vectors, "answer", fail)
    with serve(models) as client:
        found = post(client, "/embed", 500, inputs="x")
        assert "secret" not in str(found)
        assert post(client, "/predict", inputs="x")


@pytest.mark.slow  # tests/use/test_deploying.py has it without a server
def test_an_exported_folder_answers_as_its_run(folder: Path, client: TestClient) -> None:
    if not (folder / "exported").exists():
        words = [f"{folder}/films", "--to", "onnx", "--out", f"{folder}/exported"]
        command_line("convert", *words)
    own = post(client, "/predict", inputs=TEXTS)
    with serve(open_all([folder / "exported"])) as other:
        found = post(other, "/predict", inputs=TEXTS)
        assert post(other, "/embed", 424, inputs="x")
    for mine, wanted in zip(found, own, strict=True):
        shares = [{each["label"]: each["score"] for each in ranked} for ranked in (mine, wanted)]
        assert shares[0] == pytest.approx(shares[1], abs=1e-4)


def test_the_likeliest_labels_alone(client: TestClient) -> None:
    whole = post(client, "/predict", inputs=TEXTS, model="films")
    assert post(client, "/predict", inputs=TEXTS, model="films", top_k=1) == [
        own[:1] for own in whole
    ]
    assert "top_k" in client.post("/predict", json={"inputs": "a", "top_k": 0}).text


def test_names_of_models() -> None:
    assert name_models(["runs/a", "b/"]) == ["a", "b"]
    assert name_models(["runs/a", "old/a", "runs/b"]) == ["runs-a", "old-a", "b"]
    assert name_models(["x/runs/a", "y/runs/a", "a"]) == ["x-runs-a", "y-runs-a", "a"]
    with pytest.raises(UsageError, match="named twice"):
        name_models(["b", "runs/a", "runs/./a"])


def test_pooling_is_a_setting(folder: Path) -> None:
    with serve(open_all([folder / "films"], pooling="max")) as client:
        own = plmctl.load(folder / "films").embed(TEXTS, pooling="max", normalize=True)
        assert np.array(post(client, "/embed", inputs=TEXTS)) == pytest.approx(own, abs=1e-6)


NAMED = {"id2label": {0: "neg", 1: "neu", 2: "pos"}, "label2id": {"neg": 0, "neu": 1, "pos": 2}}
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "class": ("SequenceClassification", NAMED),
    "unnamed": ("SequenceClassification", {"num_labels": 2}),
    "types": ("SequenceClassification", {**NAMED, "problem_type": "multi_label_classification"}),
    "score": ("SequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "tag": ("TokenClassification", {"id2label": {0: "O", 1: "B-P"}, "label2id": {}}),
    "span": ("QuestionAnswering", {}),
}


@pytest.fixture
def published(tmp_path: Path) -> dict[str, Path]:
    """A tiny model of transformers for each head that a task reads."""
    transformers = pytest.importorskip("transformers")
    tokens = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "fine",
        "poor",
        "great",
        "awful",
        "film",
        "of",
        "the",
        "night",
    ]
    sizes = {"vocab_size": len(tokens), "hidden_size": 8, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 32}
    torch.manual_seed(0)
    for name, (kind, more) in PUBLISHED.items():
        config = transformers.BertConfig(**sizes, **more, initializer_range=0.9)
        getattr(transformers, f"BertFor{kind}")(config).save_pretrained(tmp_path / name)
        (tmp_path / name / "vocab.txt").write_text("\n".join(tokens))
    return {name: tmp_path / name for name in PUBLISHED}


@pytest.mark.parity
def test_published_models_answer_as_in_transformers(published: dict[str, Path]) -> None:
    transformers = pytest.importorskip("transformers")
    texts = ["a fine film", "great night", "the poor film of the night"]
    own = {"question": "the film", "context": "a fine film of the night"}
    with serve(open_all([*published.values()])) as client:
        found = {
            name: post(client, "/predict", inputs=own if name == "span" else texts, model=name)
            for name in published
        }
        spans = post(client, "/tag", inputs=texts, model="tag")
        bare = post(client, "/predict", 422, inputs="the film", model="span")["error"]
        assert 'or a record: {"question": "...", "context": "..."}' in bare
    theirs = {
        name: transformers.pipeline(kind, model=str(published[name]), device="cpu", **how)(texts)
        for names, kind, how in (
            (["class", "unnamed", "types", "score"], "text-classification", {"top_k": None}),
            (["tag"], "token-classification", {"ignore_labels": []}),
        )
        for name in names
    }
    for name in ("class", "unnamed", "types"):
        for ours, row in zip(found[name], theirs[name], strict=True):
            assert [each["label"] for each in ours] == [each["label"] for each in row]
            scores = [each["score"] for each in row]
            assert [each["score"] for each in ours] == pytest.approx(scores, abs=2e-6)
    numbers = [row[0]["score"] for row in theirs["score"]]
    assert [each["guess"] for each in found["score"]] == pytest.approx(numbers, abs=1e-5)
    tags = [[each["entity"] for each in row] for row in theirs["tag"]]
    assert [each["tags"] for each in spans] == tags == [each["guess"] for each in found["tag"]]
    model = transformers.BertForQuestionAnswering.from_pretrained(published["span"]).eval()
    tokenizer = transformers.BertTokenizerFast(str(published["span"] / "vocab.txt"))
    with torch.no_grad():
        said = model(**tokenizer(own["question"], own["context"], return_tensors="pt"))
    sums = (said.start_logits[0, :, None] + said.end_logits[0, None]).triu()
    assert found["span"]["guess"]
    best = sums[4:-1, 4:-1][torch.ones(6, 6).triu().bool()].max()  # behind [CLS] the film [SEP]
    assert found["span"]["null_odds"] == pytest.approx(float(sums[0, 0] - best), abs=1e-4)
