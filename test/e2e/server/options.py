#!/usr/bin/env python3
"""Every flag of `lathe serve` at a value that nobody would choose: it must reach what it is for. usage: options.py LATHE ARTIFACT"""
import json
import re
import subprocess
import sys
import tempfile
import time

from running import Server, run_tests, wait_for

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
lathe, artifact = sys.argv[1:3]
OPTIONS = """--host 0.0.0.0 --no-auth --served-name odd --allowed-host odd.example --cors-origin http://site.example --device cpu
 --threads 1 --ctx 500 --memory 60 --max-seqs 5 --saved-kv 33 --step-tokens 65 --policy deadline --preemption save --itl 12.5 --ttft 60000
 --tpot 5000 --no-prefix-cache --speculate ngram --draft-cost none --pooling mean --generation-config none --max-queue 37 --max-queue-tokens 9000
 --max-connections 333 --max-body 3 --max-bodies 11 --max-unsent 77 --header-timeout 3.5 --body-timeout 4.5 --idle-timeout 5.5
 --write-timeout 6.5 --request-timeout 1.5 --shutdown-timeout 8.5 --workers 3 --ping 0.2 --vllm-metrics""".split()


def test_every_flag_is_given(server):
    """That is, every one of the help but those that the other tests give."""
    text = subprocess.run([lathe, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    known = set(re.findall(r"^\s+(--[a-z][a-z-]*)", text, re.M))
    given = {word for word in server.command if word.startswith("--")}
    others = {"--help", "--device-plan", "--pin", "--variant", "--api-key-file", "--trace", "--trees"}
    assert given <= known and known - given <= others, (known - given, given - known)


def test_lines_at_the_start(server):
    text = server.errors()
    for part in ("model odd: context 500 tokens, 5 sequences at once, KV cache ", " 65 rows a step, queue 37 requests of 9000 prompt tokens, 1 threads, ",
                 " 35 MB for saved KV blocks\n",  # 33 MB of 2^20 bytes
                 "device cpu (", "policy deadline, ITL 12.5 ms, TTFT 60000 ms, TPOT 5000 ms, preemption save, drafts ngram whatever they cost, prefix cache off, pooling mean\n",
                 "compiled with ", "tokenizer in the file, chat template in the file, sampling defaults none\n", " matmuls of several merged; weights: ",
                 "server: 333 connections, header 16384 bytes in 3.5 s, body 3145728 bytes in 4.5 s, all bodies 11534336 bytes, unsent 78848 bytes a stream, "
                 "6.5 s without a byte taken, ping after 0.2 s, idle 5.5 s, request 1.5 s, shutdown 8.5 s, 3 workers;",
                 "access: 0 keys, nobody needs one\n", "reading memory: "):
        assert part in text, (part, text)
    rate = re.search(r"KV blocks go to the host and back at ([\d.]+) GB/s\n", text)
    assert rate and float(rate[1]) > 0, text
    memory = re.search(r"(\d+) MB for KV cache and work space", text)
    assert 50 <= int(memory[1]) <= 63, memory[0]  # 60 MB of 2^20 bytes; without the flag 76


def test_hosts_and_origins(server):
    def status(host, more=""):
        return server.raw(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n".encode())[0]
    assert status("odd.example") == 200 and status("other.example") == 403
    assert status("localhost", "Origin: http://site.example\r\n") == 200 and status("localhost", "Origin: http://other.example\r\n") == 403
    with server.connect() as s:
        s.sendall(b"OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: http://site.example\r\nAccess-Control-Request-Method: GET\r\n\r\n")
        assert b"access-control-allow-origin: http://site.example" in s.recv(65536).lower()


def test_the_size_of_a_body(server):
    assert server.post(CHAT, b" " * (3 << 20))[0] == 400 and server.post(CHAT, b" " * (3 << 20) + b" ")[0] == 413


def test_targets_of_the_server(server):
    for field, flag in (("ttft_target_ms", 60000), ("tpot_target_ms", 5000)):
        status, body = server.post(TEXT, {"prompt": "a", "max_tokens": 1, field: flag - 1})
        assert status == 400 and json.loads(body)["error"]["param"] == field, body


def ask(server, path, body):
    """What is answered in time."""
    for _ in range(40):
        status, answer = server.post(path, body)
        if status == 200:
            return json.loads(answer)
        assert status in (429, 504), answer
    raise AssertionError("nothing is answered in time")


def test_nothing_is_cached(server):
    body = {"prompt": list(range(1000, 1100)), "max_tokens": 1}
    assert [ask(server, TEXT, body)["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)] == [0, 0]


def test_pooling(server):
    def vector(**more):
        return ask(server, "/v1/embeddings", {"input": "the sea and the sky", **more})["data"][0]["embedding"]
    assert vector() == vector(pooling="mean") != vector(pooling="last")


def test_the_time_of_a_request(server):
    status, body = server.post(TEXT, {"prompt": "a", "max_tokens": 400, "n": 5, "ignore_eos": True})
    assert status == 504 and json.loads(body)["error"]["code"] == "request_timeout", body


def stream_behind_five(server):
    """What a stream gets that is asked for while five others run; one of them may have ended meanwhile, for they have 1.5 s."""
    def ask_for(stream):
        data = json.dumps({"prompt": "a", "max_tokens": 400, "ignore_eos": True, "stream": stream}).encode()
        sockets.append(server.connect())
        sockets[-1].sendall(f"POST {TEXT} HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    sockets, got = [], b""
    wait_for(lambda: not server.metric("num_requests_running"), "places for five")
    for _ in range(5):
        ask_for(stream=False)
    end = time.monotonic() + 1
    while server.metric("num_requests_running") < 5 and time.monotonic() < end:  # connections are not read in the order of their making
        time.sleep(0.01)
    ask_for(stream=True)
    while b": ping\n\n" not in got and (chunk := sockets[-1].recv(65536)):
        got += chunk
    for s in sockets:
        s.close()
    return got


def test_comments_while_a_stream_waits(server):
    answers = []
    for _ in range(20):
        answers.append(stream_behind_five(server))
        if b": ping\n\n" in answers[-1]:
            return
    raise AssertionError(answers)


def test_a_warning_for_each_unknown_field(server):
    for _ in range(2):
        server.post(TEXT, {"prompt": "a", "max_tokens": 1, "frobnicate": 1, "defenestrate": 2})
    text = server.errors()
    assert text.count("unknown field \"frobnicate\"") == 1 and text.count("unknown field \"defenestrate\"") == 1, text


def test_metrics_and_log(server):
    text = server.get("/metrics")[1].decode()
    assert "\nvllm:num_requests_running{" in text and "\nvllm:step_seconds" not in text
    lines = [json.loads(line) for line in open(server.access)]
    assert any(line["path"] == "/health" for line in lines) and any(line["status"] == 504 for line in lines), lines


def defaults():
    """Without a flag the start says what docs/serving.md says."""
    with Server(lathe, [artifact], "--memory", "128", "--ctx", "1024") as server:
        text = server.errors()
    with open(__file__.replace("test/e2e/server/options.py", "docs/serving.md")) as page:
        page = page.read()
    fixed = re.search(r"^Fixed: (.*)$", page, re.M)[1]
    row = {flag: default for names, default in re.findall(r"^\| (`--[^|]*) \| ([^|]*) \|", page, re.M)
           for flag, default in zip(re.findall(r"--[a-z-]+", names), default.strip().split(", "))}
    number = lambda flag: float(re.match(r"[\d.]+", row[flag])[0])  # noqa: E731
    found = re.search(r"server: (\d+) connections, header (\d+) bytes in ([\d.]+) s, body (\d+) bytes in ([\d.]+) s, all bodies (\d+) bytes, unsent (\d+) bytes a "
                      r"stream, ([\d.]+) s without a byte taken, ping after ([\d.]+) s, idle ([\d.]+) s, request ([\d.]+) s, shutdown ([\d.]+) s, (\d+) workers", text)
    found = [float(value) for value in found.groups()]
    header = int(re.search(r"header (\d+) KiB", fixed)[1]) << 10
    expected = [number("--max-connections"), header, number("--header-timeout"), number("--max-body") * 2**20, number("--body-timeout"),
                number("--max-bodies") * 2**20, number("--max-unsent") * 2**10, number("--write-timeout"), number("--ping"), number("--idle-timeout"),
                number("--request-timeout"), number("--shutdown-timeout"), number("--workers")]
    assert found == expected, (found, expected)
    found = re.search(r"(\d+) sequences at once, .* (\d+) rows a step, queue (\d+) requests of (\S+) .* (\d+) MB for saved", text)
    assert [int(value) for value in found.groups()[:3]] == [number("--max-seqs"), number("--step-tokens"), number("--max-queue")], found
    assert found[4] == "any" and int(found[5]) <= 34, found  # a fourth of --memory
    for part in ("policy fcfs, preemption auto, drafts off, prefix cache on, pooling last\n", "sampling defaults the file's\n"):
        assert part in text, (part, text)
    found = re.search(r"request: n (\d+), (\d+) prompts, (\d+) stop strings of (\d+) bytes, (\d+) stop token ids, (\d+) log-probabilities, (\d+) biases, (\d+) messages, "
                      r"JSON of (\d+) levels, (\d+) values in chat_template_kwargs, (\d+) bytes of cache_salt", text)
    stated = re.search(r"`n` (\d+); (\d+) prompts, .*; (\d+) stop strings of (\d+) bytes; (\d+) stop token ids; (\d+) log-probabilities; (\d+) biases .*; (\d+) messages; "
                       r"JSON of (\d+) levels; (\d+) values in `chat_template_kwargs`; (\d+) bytes of `cache_salt`", fixed)
    assert found.groups() == stated.groups(), (found.groups(), stated.groups())


def main():
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as log:
        with Server(lathe, [artifact], *OPTIONS, "--access-log", log.name) as server:
            server.access = log.name
            server.host = "127.0.0.1"
            failed = run_tests(sys.modules[__name__], server)
            if failed:
                print(server.errors())
    defaults()
    print("ok   defaults")
    sys.exit(failed)


if __name__ == "__main__":
    main()
