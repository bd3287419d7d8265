#!/usr/bin/env python3
"""The official openai client against `lathe serve`. usage: openai_suite.py LATHE ARTIFACT"""
import base64
import json
import struct
import subprocess
import sys
import tempfile

import httpx
import openai

from running import Server, run_tests

QUESTION = [{"role": "user", "content": "Name three colours."}]


def test_models(client, server):
    models = client.models.list().data
    assert [m.id for m in models] == ["smol"], models
    assert client.models.retrieve("smol").max_model_len > 0


def test_chat(client, server):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=20, temperature=0)
    choice = answer.choices[0]
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens <= 20
    # What the bits depend on: the runtime, the variant, the artifact.
    described = json.loads(subprocess.run([LATHE, "inspect", ARTIFACT, "--json"], capture_output=True, text=True, check=True).stdout)
    variants = [s["variant"] for s in described["sections"] if "variant" in s]
    *_, variant, content = answer.system_fingerprint.split("-")
    assert answer.system_fingerprint.startswith("lathe-") and variant in variants and content in described["content_hash"], answer.system_fingerprint


def test_stream_equals_whole(client, server):
    ask = dict(model="smol", messages=QUESTION, max_tokens=24, temperature=0.8, seed=7)
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_seeds(client, server):
    def ask(seed):
        return client.completions.create(model="smol", prompt="Once upon a time", max_tokens=16, temperature=1, seed=seed)
    a, b, c = ask(1), ask(1), ask(2)
    assert a.choices[0].text == b.choices[0].text != c.choices[0].text
    free = client.completions.create(model="smol", prompt="Once upon a time", max_tokens=16, temperature=1)
    again = ask(free.choices[0].seed)  # the seed that was drawn is reported, and gives the same again
    assert again.choices[0].text == free.choices[0].text


def test_equals_run(client, server):
    """The tokens are those of `lathe run`."""
    ids = [1, 504, 1213, 282, 4649, 314]
    answer = client.completions.create(model="smol", prompt=ids, max_tokens=12, temperature=0)
    run = subprocess.run([LATHE, "run", ARTIFACT, "--prompt-ids", ",".join(map(str, ids)), "-n", "12", "--temp", "0", "--json"],
                         capture_output=True, text=True, check=True)
    assert json.loads(run.stdout)["text"] == answer.choices[0].text, (run.stdout, answer.choices[0].text)


def test_n_and_stop(client, server):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, n=3, temperature=1.2, seed=3, max_tokens=12)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) > 1
    plain = client.completions.create(model="smol", prompt="1, 2, 3, 4,", max_tokens=16, temperature=0).choices[0].text
    stop = plain[5:7]
    cut = client.completions.create(model="smol", prompt="1, 2, 3, 4,", max_tokens=16, temperature=0, stop=[stop]).choices[0]
    assert cut.text == plain[:plain.index(stop)] and cut.finish_reason == "stop" and cut.stop_reason == stop


def test_stop_over_token_borders(client, server):
    """A stop string that begins in one token and ends in the next: streamed, nothing of it leaks, and nothing else is lost."""
    ask = dict(model="smol", prompt="1, 2, 3, 4,", max_tokens=24, temperature=0)
    plain = client.completions.create(**ask, logprobs=0).choices[0]
    tokens, found = plain.logprobs.tokens, 0
    for i in range(2, len(tokens) - 2):
        stop = tokens[i][-1:] + tokens[i + 1] + tokens[i + 2][:1]
        at = len("".join(tokens[:i + 1])) - 1
        if plain.text.find(stop) != at:  # it comes before, or a character is cut
            continue
        found += 1
        whole = client.completions.create(**ask, stop=[stop, "never said"]).choices[0]
        assert whole.text == plain.text[:at] and whole.finish_reason == "stop" and whole.stop_reason == stop, (stop, whole)
        chunks = [c.choices[0] for c in client.completions.create(**ask, stop=["never said", stop], stream=True) if c.choices]
        assert "".join(c.text for c in chunks) == whole.text, (stop, chunks)
        assert chunks[-1].finish_reason == "stop" and chunks[-1].stop_reason == stop
        if found == 4:
            break
    assert found, tokens
    # What looks like the beginning of one is held back, not lost.
    near = plain.text[4:7] + "\0"
    chunks = client.completions.create(**ask, stop=[near], stream=True)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == plain.text


def test_choices_streamed(client, server):
    """n with a seed and logprobs: put together, a stream is the whole answer."""
    ask = dict(model="smol", messages=QUESTION, n=3, temperature=1.2, seed=11, max_tokens=10, logprobs=True, top_logprobs=2)
    whole, again = (client.chat.completions.create(**ask).choices for _ in range(2))
    assert [c.message.content for c in whole] == [c.message.content for c in again]
    texts, tokens, ends = [""] * 3, [[], [], []], [None] * 3
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            tokens[choice.index] += choice.logprobs.content if choice.logprobs else []
            ends[choice.index] = choice.finish_reason or ends[choice.index]
    assert texts == [c.message.content for c in whole]
    assert tokens == [c.logprobs.content for c in whole]
    assert ends == [c.finish_reason for c in whole]


def test_chat_logprobs(client, server):
    answer = client.chat.completions.create(model="smol", messages=QUESTION, max_tokens=6, temperature=0, logprobs=True,
                                            top_logprobs=4)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == answer.usage.completion_tokens
    assert b"".join(bytes(t.bytes) for t in tokens).decode() == answer.choices[0].message.content
    for t in tokens:
        assert len(t.top_logprobs) == 4 and t.logprob <= 0
        assert t.token == t.top_logprobs[0].token  # greedy
        assert [x.logprob for x in t.top_logprobs] == sorted((x.logprob for x in t.top_logprobs), reverse=True)


def test_completion_logprobs_and_echo(client, server):
    answer = client.completions.create(model="smol", prompt="The sky is", max_tokens=3, temperature=0, logprobs=2, echo=True)
    choice, lists = answer.choices[0], answer.choices[0].logprobs
    count = answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert len(lists.tokens) == len(lists.token_logprobs) == len(lists.top_logprobs) == len(lists.text_offset) == count
    assert lists.token_logprobs[0] is None and all(p <= 0 for p in lists.token_logprobs[1:])
    assert choice.text.startswith("The sky is") and "".join(lists.tokens) == choice.text
    scored = client.completions.create(model="smol", prompt="The sky is", max_tokens=0, logprobs=0, echo=True)
    # What the prompt's tokens cost does not depend on what follows.
    n = answer.usage.prompt_tokens
    assert scored.choices[0].logprobs.token_logprobs[1:] == lists.token_logprobs[1:n]


def test_prompts_and_tokens(client, server):
    tokens = httpx.post(server.url + "/tokenize", json={"prompt": "Hello world", "add_special_tokens": False}).json()["tokens"]
    assert httpx.post(server.url + "/detokenize", json={"tokens": tokens}).json()["prompt"] == "Hello world"
    text = client.completions.create(model="smol", prompt="Hello world", max_tokens=8, temperature=0)
    ids = client.completions.create(model="smol", prompt=tokens, max_tokens=8, temperature=0)
    both = client.completions.create(model="smol", prompt=[tokens, tokens[:1]], max_tokens=8, temperature=0)
    assert text.choices[0].text == ids.choices[0].text == both.choices[0].text
    assert len(both.choices) == 2


def test_prefix_is_reused(client, server):
    prompt = "The history of the lighthouse begins long before the harbour was built. " * 12
    first = client.completions.create(model="smol", prompt=prompt, max_tokens=4, temperature=0)
    second = client.completions.create(model="smol", prompt=prompt, max_tokens=4, temperature=0)
    assert second.usage.prompt_tokens_details.cached_tokens > 0
    assert first.choices[0].text == second.choices[0].text


def test_embeddings(client, server):
    texts = ["The cat sat.", "A dog ran."]
    floats = client.embeddings.create(model="smol", input=texts, encoding_format="float")
    coded = httpx.post(server.url + "/v1/embeddings", json={"model": "smol", "input": texts, "encoding_format": "base64"}).json()
    for i in range(2):
        raw = base64.b64decode(coded["data"][i]["embedding"])
        values = struct.unpack(f"<{len(raw) // 4}f", raw)
        assert len(values) == 576
        assert max(abs(a - b) for a, b in zip(values, floats.data[i].embedding)) < 1e-6 * max(map(abs, values))
    unit = httpx.post(server.url + "/v1/embeddings", json={"input": "The cat sat.", "normalize": True}).json()
    assert abs(sum(v * v for v in unit["data"][0]["embedding"]) - 1) < 1e-5


def test_parameters_change_the_answer(client, server):
    def ask(**more):
        return client.completions.create(model="smol", prompt="The capital of France is", max_tokens=8, temperature=0, **more)
    plain = ask(logprobs=0)
    banned = httpx.post(server.url + "/tokenize", json={"prompt": plain.choices[0].logprobs.tokens[0], "add_special_tokens": False}).json()["tokens"][0]
    assert ask(logit_bias={str(banned): -100}).choices[0].text != plain.choices[0].text
    one = client.completions.create(model="smol", prompt="Hi", max_tokens=4, temperature=2, extra_body={"top_k": 1})
    greedy = client.completions.create(model="smol", prompt="Hi", max_tokens=4, temperature=0)
    assert one.choices[0].text == greedy.choices[0].text
    long = client.completions.create(model="smol", prompt="Bye", max_tokens=30, temperature=0, extra_body={"ignore_eos": True})
    assert long.usage.completion_tokens == 30 and long.choices[0].finish_reason == "length"


def refused(kind, call, code=None, param=None):
    try:
        call()
    except kind as error:
        assert code is None or error.code == code, error
        assert param is None or error.param == param, error
        return
    raise AssertionError("expected " + kind.__name__)


def test_errors(client, server):
    def ask(**more):
        return lambda: client.chat.completions.create(**{"model": "smol", "messages": QUESTION, "max_tokens": 4, **more})
    refused(openai.NotFoundError, ask(model="gpt"), code="model_not_found")
    refused(openai.BadRequestError, ask(temperature=-1), param="temperature")
    refused(openai.BadRequestError, ask(response_format={"type": "json_object"}), param="response_format")
    refused(openai.BadRequestError, ask(tools=[{"type": "function", "function": {"name": "f"}}]), param="tools")
    refused(openai.BadRequestError, ask(max_tokens=10 ** 6), code="context_length_exceeded")
    refused(openai.BadRequestError, ask(extra_body={"chat_template": "x"}), param="chat_template")
    refused(openai.BadRequestError, lambda: client.embeddings.create(model="smol", input="a", dimensions=7), param="dimensions")
    ask(tools=[], tool_choice="none", user="u", store=False, response_format={"type": "text"}, extra_body={"frobnicate": 1})()


def test_keys_and_their_bounds(client, server):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as keys:
        keys.write(json.dumps({"name": "one", "key": "sk-one-of-them", "concurrency": 1}) + "\n")
        keys.flush()
        with Server(LATHE, [ARTIFACT], "--served-name", "smol", "--ctx", "2048", "--max-seqs", "4", "--api-key-file", keys.name) as closed:
            def of(key):
                return openai.OpenAI(base_url=closed.url + "/v1", api_key=key, max_retries=0, timeout=120)
            ask = dict(model="smol", prompt="Hi", max_tokens=2)
            refused(openai.AuthenticationError, lambda: of("sk-another").completions.create(**ask), code="invalid_api_key")
            with of("sk-one-of-them").completions.create(**{**ask, "max_tokens": 1900}, stream=True, extra_body={"ignore_eos": True}) as first:
                next(iter(first))
                try:
                    of("sk-one-of-them").completions.create(**ask)
                    raise AssertionError("expected a RateLimitError")
                except openai.RateLimitError as error:
                    assert error.code == "concurrency_exceeded" and int(error.response.headers["retry-after"]) >= 1, error
                assert of("sk-one-of-them").models.list().data[0].id == "smol"  # who only looks uses nothing up


def test_an_error_inside_a_stream(client, server):
    with Server(LATHE, [ARTIFACT], "--served-name", "smol", "--request-timeout", "2") as short:
        impatient = openai.OpenAI(base_url=short.url + "/v1", api_key="none", max_retries=0, timeout=120)
        for _ in range(5):  # on a machine that is busy the time may be over before the stream begins
            chunks = []
            try:
                for chunk in impatient.chat.completions.create(model="smol", messages=QUESTION, max_tokens=7000, stream=True, extra_body={"ignore_eos": True}):
                    chunks.append(chunk)
                raise AssertionError("the stream ended without an error")
            except openai.APIError as error:
                if not chunks:
                    continue
                assert error.code == "request_timeout", error
                return
        raise AssertionError("no stream began")


def test_two_models(client, server):
    with Server(LATHE, [ARTIFACT, ARTIFACT], "--served-name", "one", "--served-name", "two", "--ctx", "512", "--max-seqs", "4") as both:
        second = openai.OpenAI(base_url=both.url + "/v1", api_key="none", max_retries=0, timeout=120)
        assert [m.id for m in second.models.list().data] == ["one", "two"]
        ask = dict(prompt="The sea is", max_tokens=8, temperature=0)
        answers = {name: second.completions.create(model=name, **ask) for name in ("one", "two")}
        assert answers["one"].model == "one" and answers["two"].model == "two"
        assert answers["one"].choices[0].text == answers["two"].choices[0].text == client.completions.create(model="smol", **ask).choices[0].text
        refused(openai.NotFoundError, lambda: second.completions.create(model="three", **ask), code="model_not_found")


def main():
    global LATHE, ARTIFACT
    LATHE, ARTIFACT = sys.argv[1:3]
    with Server(LATHE, [ARTIFACT], "--served-name", "smol", "--ctx", "2048") as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=120)
        failed = run_tests(sys.modules[__name__], client, server)
        if failed:
            print(server.errors())
    sys.exit(failed)


if __name__ == "__main__":
    main()
