#!/usr/bin/env python3
"""Fair shares, targets, priorities and preemption on a real model: what the simulated tests promise, seen once in `lathe serve`.
Order and counts are checked, never times. usage: policies.py LATHE ARTIFACT"""
import json
import re
import subprocess
import sys
import tempfile
import threading

from running import Server, run_tests, wait_for

PATH = "/v1/completions"
lathe, artifact = sys.argv[1:3]


class Call(threading.Thread):
    """A request of its own thread. |finished|: its place in the order of answers, from the list that all share."""

    def __init__(self, server, order, name, key=None, **fields):
        super().__init__()
        self.server, self.order, self.name, self.key = server, order, name, key
        self.fields = {"temperature": 0, "ignore_eos": True, **fields}
        self.start()

    def run(self):
        headers = f"Authorization: Bearer {self.key}\r\n" if self.key else ""
        self.status, body = self.server.post(PATH, self.fields, headers)
        self.answer = json.loads(body)
        self.order.append(self.name)

    def text(self):
        self.join()
        assert self.status == 200, self.answer
        return self.answer["choices"][0]["text"]


def prompt(n, words=30):
    """Different prompts, so that no prefix is shared."""
    return f"Story number {n}. " + " ".join(f"word{(n * 7919 + i * 31) % 997}" for i in range(words))


def kinds(server):
    text = server.get("/metrics")[1].decode()
    return {kind: int(float(count)) for kind, count in re.findall(r'lathe:preemptions_by_kind_total\{.*kind="(\w+)"\} (\S+)', text)}


def smallest_memory():
    """MB of the smallest cache that holds one context."""
    for megabytes in range(8, 400, 4):
        done = subprocess.run([lathe, "run", artifact, "--ctx", "512", "--memory", str(megabytes), "--prompt-ids", "1", "-n", "1"],
                              capture_output=True)
        if done.returncode == 0:
            return megabytes
    raise AssertionError("no memory is enough")


def preempted(mode):
    memory = smallest_memory() + 4
    with tempfile.NamedTemporaryFile(suffix=".trace") as trace:
        preempted_server(mode, memory, trace.name)
        done = subprocess.run([lathe, "replay", trace.name], capture_output=True, text=True)
        assert done.returncode == 0 and "all the same" in done.stdout, done.stdout + done.stderr
        print("     the trace: " + done.stdout.strip())


def preempted_server(mode, memory, trace):
    with Server(lathe, [artifact], "--ctx", "512", "--max-seqs", "8", "--memory", str(memory), "--saved-kv", "256", "--preemption", mode,
                "--speculate", "ngram", "--trace", trace) as server:
        ask = [dict(prompt=prompt(n, 6), max_tokens=150, temperature=n % 2, seed=n) for n in range(8)]
        alone = [Call(server, [], "", **fields).text() for fields in ask]
        assert sum(kinds(server).values()) == 0
        for _ in range(60):  # what the scheduler then takes for the usual length of an answer
            Call(server, [], "", prompt="x", max_tokens=1).text()
        calls = [Call(server, [], "", cache_salt="again", **fields) for fields in ask]
        assert [call.text() for call in calls] == alone
        seen = kinds(server)
        other = {"recompute": "save", "save": "recompute"}[mode]
        assert seen[mode] > 0 and seen[other] == 0, seen
        wait_for(lambda: server.metric("kv_cache_saved_bytes") == 0, "no saved block")
        print(f"     {mode}: {seen[mode]} preemptions show in none of 8 answers")


def test_preemption_by_recompute():
    preempted("recompute")


def test_preemption_by_save():
    preempted("save")


def beside_a_flood(policy):
    """How many of the flood still wait when the other tenant's answer comes."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as keys:
        for name in ("flood", "polite"):
            keys.write(json.dumps({"name": name, "key": "sk-" + name + "-key"}) + "\n")
        keys.flush()
        with Server(lathe, [artifact], "--ctx", "512", "--max-seqs", "4", "--policy", policy, "--api-key-file", keys.name) as server:
            def metrics():
                return server.raw(f"GET /metrics HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\nAuthorization: Bearer sk-flood-key\r\n\r\n".encode())[1].decode()

            def waiting():
                return float(re.search(r"lathe:num_requests_waiting\{.*\} (\S+)", metrics())[1])

            flood = [Call(server, [], "", key="sk-flood-key", prompt=prompt(n), max_tokens=24) for n in range(60)]
            wait_for(lambda: waiting() >= 40, "a flood that waits")
            Call(server, [], "", key="sk-polite-key", prompt=prompt(99), max_tokens=8).text()
            left = waiting()
            # Labels come from the key file, whatever a body says.
            Call(server, [], "", key="sk-polite-key", prompt=prompt(99), max_tokens=1, user="mallory", tenant="mallory").text()
            wait_for(lambda: re.search(r'lathe:tenant_requests_total\{.*tenant="polite"\} 2\n', metrics()), "two requests of the tenant")
            text = metrics()
            assert "mallory" not in text and set(re.findall(r'tenant="([^"]*)"', text)) <= {"polite", "flood"}
            for call in flood:
                call.text()
            return left


def test_fair_shares_beside_a_flood():
    fair, fcfs = beside_a_flood("fair"), beside_a_flood("fcfs")
    print(f"     of 60 requests of the other tenant wait when the answer comes: fair {fair:.0f}, fcfs {fcfs:.0f}")
    assert fair >= 20, fair
    assert fcfs == 0, fcfs


def test_targets():
    with Server(lathe, [artifact], "--ctx", "512", "--max-seqs", "1", "--policy", "deadline", "--ttft", "100") as server:
        order = []
        first = Call(server, order, "first", prompt=prompt(1), max_tokens=380, ttft_target_ms=1e6)
        wait_for(lambda: server.metric("num_requests_running") == 1, "the first to run")
        calls = [first]
        for name, target in (("patient", 9e5), ("hurried", 6e5)):  # came in this order
            calls.append(Call(server, order, name, prompt=prompt(len(calls) + 1), max_tokens=4, ttft_target_ms=target))
            wait_for(lambda: server.metric("num_requests_waiting") == len(calls) - 1, name + " to wait")
        # The server's own target cannot be met behind three others, and is said so at once.
        body = json.dumps({"prompt": prompt(9, 60), "max_tokens": 4}).encode()
        with server.connect() as s:
            s.sendall(f"POST {PATH} HTTP/1.1\r\nHost: {server.host}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            got = b""
            while chunk := s.recv(65536):
                got += chunk
        for call in calls:
            call.text()
        assert order == ["first", "hurried", "patient"], order
        assert got.startswith(b"HTTP/1.1 429") and re.search(rb"\r\nRetry-After: [1-9]", got) and b'"overloaded"' in got, got
        assert server.metric("admission_rejections_total") == 1


def test_priorities():
    with Server(lathe, [artifact], "--ctx", "512", "--max-seqs", "2", "--policy", "priority") as server:
        ask = [dict(prompt=prompt(n), max_tokens=150) for n in range(2)]
        alone = [Call(server, [], "", **fields).text() for fields in ask]
        order = []
        low = [Call(server, order, "low", cache_salt="again", priority=5, **fields) for fields in ask]
        wait_for(lambda: server.metric("num_requests_running") == 2, "both to run")
        high = Call(server, order, "high", prompt=prompt(7), max_tokens=4, priority=-5)
        high.text()
        assert [call.text() for call in low] == alone
        assert order[0] == "high", order
        assert server.metric("num_preemptions_total") >= 1


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
