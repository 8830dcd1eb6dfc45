"""/fill and /generate: the answers of the Python face, each by the settings of its request."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import plmctl
from plmctl.core.errors import UsageError
from plmctl.runtime.ctranslate2 import CTranslate2Runtime
from plmctl.serve.prompts import order_settings
from plmctl.serve.routes.completions import cut
from tests.command import plmctl as command_line
from tests.serve.served import open_all, serve


@pytest.fixture(scope="module")
def client(folder: Path) -> Any:
    with serve(open_all([folder / "fills", folder / "writes"])) as client:
        yield client


def test_masks_are_filled(client: Any, folder: Path) -> None:
    texts = ["a [MASK] film", "[MASK] [MASK]"]
    for top in (1, 3):
        found = client.post("/fill", json={"inputs": texts, "top_k": top}).json()
        assert found == plmctl.load(folder / "fills").fill(texts, top=top)
    alone = client.post("/fill", json={"inputs": texts[0], "top_k": 3}).json()
    assert alone == found[0]
    reply = client.post("/fill", json={"inputs": texts[0], "top_k": 10**6})
    assert reply.status_code == 422
    assert reply.json()["error"].startswith("top_k=1000000, at most ")
    with_gaps = client.post("/fill", json={"inputs": ["a fine film", texts[0], ""], "top_k": 3})
    assert with_gaps.json()[1] == alone
    for number, text in ((0, "a fine film"), (2, "")):
        own = with_gaps.json()[number]
        assert own.pop("error").startswith(f"inputs:{number + 1}: ")
        assert own == {"prompt": text, "text": "", "masks": []}
    reply = client.post("/fill", json={"inputs": "a fine film"})
    assert reply.status_code == 422
    assert "fills masks" in reply.json()["error"]


@pytest.mark.parametrize(
    "search",
    [
        {},
        {"name": "beam", "width": 3, "count": 2},
        {"name": "sample", "top_p": 0.9, "seed": 7},
        "sample",
    ],
)
def test_texts_are_written(client: Any, folder: Path, search: str | dict[str, Any]) -> None:
    texts = ["a film", "fine"]
    body = {"inputs": [*texts, " "], "max_new": 4, "search": search}
    *found, blank = client.post("/generate", json=body).json()
    assert blank == {"prompt": " ", "texts": [], "error": "inputs:3: an empty prompt"}
    search = {"name": search} if isinstance(search, str) else search
    options = {name: value for name, value in search.items() if name != "name"}
    name = search.get("name", "greedy")
    own = plmctl.load(folder / "writes").generate(texts, max_new=4, search=name, options=options)
    assert [[each["text"] for each in answer["texts"]] for answer in found] == [
        [each["text"] for each in answer["texts"]] for answer in own
    ]


def test_requests_with_unlike_settings_are_written_together(folder: Path) -> None:
    models = open_all([folder / "writes"])
    own, counts = plmctl.load(folder / "writes"), []
    asked: list[dict[str, Any]] = [
        {"inputs": ["a film", "fine"], "max_new": 9},
        {"inputs": ["a fine film"], "max_new": 2},
        {"inputs": ["fine"], "max_new": 7, "search": {"name": "sample", "seed": 3, "count": 2}},
        {"inputs": ["a film a film"], "max_new": 5, "search": {"name": "greedy", "min_length": 3}},
        {"inputs": ["a film"], "max_new": 5, "search": {"name": "beam", "width": 2}},
    ]
    (served,) = models
    assert served.prompts is not None
    flow = served.prompts.flow
    assert flow is not None
    for body in asked:  # composing settings takes time, in which the others would be written
        served.prompts.engine(order_settings(body.get("search", {}), max_new=body["max_new"]))
    step = flow.step

    def count_then_step() -> Any:
        if not counts:  # meanwhile the other requests come
            time.sleep(0.3)
        counts.append(len(flow.together))
        return step()

    flow.step = count_then_step  # type: ignore[method-assign]
    with serve(models) as client, ThreadPoolExecutor(len(asked)) as pool:
        found = [*pool.map(lambda body: client.post("/generate", json=body).json(), asked)]
    for body, answers in zip(asked, found, strict=True):
        options = {**body.get("search", {})}
        name = options.pop("name", "greedy")
        for number, text in enumerate(body["inputs"]):
            how: Any = {"max_new": body["max_new"], "search": name, "options": options}
            wanted = own.generate(body["inputs"], **how)[number]
            assert [each["text"] for each in answers[number]["texts"]] == [
                each["text"] for each in wanted["texts"]
            ], text
    assert max(counts) > 2  # texts of two requests at least
    assert len(flow.together) == 0


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ({"name": "beams"}, "beam"),
        ({"widht": 3, "name": "beam"}, "width"),
        ({"width": "x y", "name": "beam"}, "a word or a number"),
        ({"width": 0, "name": "beam"}, "width"),
        ({"search": "beam", "width": 3}, '{"name": "beam"'),
        ({"widht": 3, "cuont": 2, "name": "beam"}, "search.width"),  # two problems
        ({"widht": 3, "cuont": 2, "name": "beam"}, "search.count"),
        ("beams", "beam"),
        (3, "search: a text or an object is needed, not 3"),
    ],
)
def test_a_wrong_search_is_explained(client: Any, search: Any, words: str) -> None:
    reply = client.post("/generate", json={"inputs": "a film", "search": search})
    assert reply.status_code == 422, reply.text
    assert words in reply.json()["error"]


def test_completions_have_the_form_of_openai(client: Any, folder: Path) -> None:
    texts, own = ["a film", "fine"], plmctl.load(folder / "writes")
    drawn: dict[str, Any] = {"temperature": 0.8, "top_p": 0.9, "seed": 3}
    options = {**drawn, "count": 2}
    wanted = own.generate(texts, max_new=4, search="sample", options=options)
    body = {"prompt": texts, "max_tokens": 4, "n": 2, "user": "a", **drawn}
    found = client.post("/v1/completions", json=body).json()
    assert found["object"] == "text_completion"
    flat = [text for answer in wanted for text in answer["texts"]]
    for number, (choice, text) in enumerate(zip(found["choices"], flat, strict=True)):
        reason = "stop" if text["finished"] else "length"
        assert choice == {
            "text": text["text"], "index": number, "logprobs": None, "finish_reason": reason
        }  # fmt: skip
    usage, count = found["usage"], own.tokenizer.encode
    assert usage["completion_tokens"] == sum(len(count(each["text"])) for each in flat)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]

    ((text,),) = [each["texts"] for each in own.generate(["a film"], max_new=6)]
    stop = text["text"][2:4]
    body = {"prompt": "a film", "max_tokens": 6, "temperature": 0, "stop": ["@@", stop]}
    (choice,) = client.post("/v1/completions", json=body).json()["choices"]
    assert choice["text"] == text["text"].split(stop)[0]
    assert choice["finish_reason"] == "stop"


def read_events(reply: Any) -> tuple[list[str], list[dict[str, Any]]]:
    """(the text of each prompt, all events) of a stream."""
    assert reply.headers["content-type"].startswith("text/event-stream")
    *lines, last, end = reply.text.split("\n\n")
    assert (last, end) == ("data: [DONE]", "")
    events, texts = [json.loads(line.removeprefix("data: ")) for line in lines], dict[int, str]()
    for choice in (choice for event in events for choice in event["choices"]):
        texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return [texts[number] for number in sorted(texts)], events


@pytest.mark.parametrize("more", [{}, {"echo": True}, {"temperature": 0}, {"stop": ["fi"]}])
def test_a_stream_has_the_whole_texts_in_parts(client: Any, more: dict[str, Any]) -> None:
    body = {"prompt": ["a film", "fine"], "max_tokens": 9, "seed": 5, **more}
    whole = client.post("/v1/completions", json=body).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    texts, events = read_events(client.post("/v1/completions", json={**body, **options}))
    assert texts == [choice["text"] for choice in whole["choices"]]
    begun = [text.startswith(own) for text, own in zip(texts, body["prompt"], strict=True)]
    assert all(begun) is bool(more.get("echo"))
    reasons = [each["finish_reason"] for event in events for each in event["choices"]]
    assert [*filter(None, reasons)] == [each["finish_reason"] for each in whole["choices"]]
    assert len(reasons) > 4  # in more parts than a whole and an end
    assert events[-1]["usage"] == whole["usage"]
    assert len({event["id"] for event in events}) == 1


def test_an_end_that_may_become_a_stop_waits() -> None:
    assert cut("one, tw", ["two"], grows=True) == "one, "
    assert cut("one, tw", ["two"]) == "one, tw"
    assert cut("one, two, three", ["thr", "two"], grows=True) == "one, "
    assert cut("one", ["", "nex"], grows=True) == "o"


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "there is no field 'prompt'"),
        ({"prompt": ["a film", " "]}, 422, "an empty prompt"),
        ({"prompt": " ", "stream": True}, 422, "an empty prompt"),
        ({"prompt": "a", "stream": True, "n": 2}, 400, "n=2: a stream has one text"),
        ({"prompt": "a", "best_of": 2}, 400, "there is no field 'best_of'"),
        ({"prompt": "a", "logprobs": 0}, 400, "logprobs: this server has none; leave it out"),
        ({"prompt": "a", "suffix": "b"}, 400, "suffix: this server has none; leave it out"),
        ({"prompt": "a", "n": 2, "temperature": 0}, 400, "n=2: with temperature 0"),
        ({"prompt": "a", "max_tokens": 10**6}, 400, "max_tokens=1000000, at most 512"),
        ({"prompt": "a", "stop": list("abcde")}, 400, "stop: 5 texts, at most 4"),
    ],
)
def test_completions_that_cannot_be(
    client: Any, body: dict[str, Any], status: int, words: str
) -> None:
    reply = client.post("/v1/completions", json=body)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"]) == (status, "invalid_request_error"), error
    assert words in error["message"]


def test_settings_are_names_and_plain_values() -> None:
    assert order_settings({"b": 2, "a": 1}, top=None, max_new=3) == (
        ("search", "greedy"),
        ("search.a", 1),
        ("search.b", 2),
        ("max_new", 3),
    )
    for search in ({"a b": 1}, {"a": "x=y"}, {"name": "../beam"}, {"a": [1]}):
        with pytest.raises(UsageError, match="search: "):
            order_settings(search)


def test_an_exported_folder_writes_as_its_run(folder: Path, client: Any) -> None:
    """A folder of CTranslate2, and a run that this library writes for."""
    (folder / "lines.txt").write_text("a fine film\nan awful film and a fine film\n")
    words = [f"{folder}/writes", "--to", "ctranslate2", "--data", f"{folder}/lines.txt"]
    command_line("convert", *words, "--out", f"{folder}/written")
    body = {"inputs": ["a film", "fine"], "max_new": 4}
    own = client.post("/generate", json=body).json()
    run = open_all([folder / "writes"], runtime=lambda precision, loaded: CTranslate2Runtime())
    for models in (open_all([folder / "written"]), run):
        with serve(models) as other:
            found = other.post("/generate", json=body).json()
            wrong = {**body, "search": {"name": "beam"}}
            reply = other.post("/generate", json=wrong)
        for mine, wanted in zip(found, own, strict=True):
            assert mine["texts"][0]["text"] == wanted["texts"][0]["text"]
        assert reply.status_code == 422, reply.text
        assert "search.early=False: true: " in reply.json()["error"]
