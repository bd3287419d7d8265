#!/usr/bin/env python3
"""What goes wrong between clients and `lathe serve`. usage: robust.py LATHE ARTIFACT"""
import json
import random
import signal
import sys
import threading
import time

from running import Server, run_tests, wait_for

CHAT = {"messages": [{"role": "user", "content": "Tell a long story."}], "ignore_eos": True}
PATH = "/v1/chat/completions"


def request(server, body):
    data = json.dumps(body).encode()
    return f"POST {PATH} HTTP/1.1\r\nHost: {server.host}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def empty(server):
    return server.metric("num_requests_running") == 0 and server.metric("num_requests_waiting") == 0


def no_blocks(server):
    return 'state="owned"} 0' in server.get("/metrics")[1].decode()


def test_malformed(server):
    for body in (b"{", b"[]", b"\xff\xfe", b'{"messages":"\xc3"}', b'{"messages":[{"role":"user","content":"\\ud800"}]}', b"[" * 5000,
                 b'{"a":' * 70 + b"1" + b"}" * 70, b"", b"\0" * 100):
        assert server.post(PATH, body)[0] == 400, body[:20]
    assert server.post(PATH, b" " * (9 << 20))[0] == 413
    for junk in (b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        assert server.raw(junk)[0] in (0, 400), junk
    assert server.get("/health")[0] == 200


def test_aborts_leave_nothing(server):
    rng = random.Random(1)
    for round in range(8):
        sockets = []
        for _ in range(12):
            s = server.connect()
            s.sendall(request(server, {**CHAT, "stream": rng.random() < 0.7, "max_tokens": 400, "n": rng.choice([1, 1, 3])}))
            sockets.append(s)
        time.sleep(rng.random() * 0.3)
        for s in sockets:
            s.close()
    wait_for(lambda: empty(server) and no_blocks(server), "no request and no owned block")


def test_half_open_and_slow_clients(server):
    half = []
    for _ in range(50):
        s = server.connect()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        half.append(s)
    slow = server.connect(4096)
    slow.sendall(request(server, {**CHAT, "stream": True, "max_tokens": 64}))
    status, body = server.post(PATH, {**CHAT, "max_tokens": 4})
    assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 4
    for s in half + [slow]:
        s.close()
    wait_for(lambda: empty(server), "no request")


def test_queue_bound(server):
    sockets = []
    for _ in range(60):
        s = server.connect()
        s.sendall(request(server, {**CHAT, "max_tokens": 900}))
        sockets.append(s)
    wait_for(lambda: server.metric("admission_rejections_total") > 0, "a full queue")
    for s in sockets:
        s.close()
    wait_for(lambda: empty(server), "no request")


def test_idle_costs_nothing(server):
    def rests():  # after what came before: memory is touched ahead of its use
        used = server.cpu_seconds()
        time.sleep(0.5)
        return server.cpu_seconds() - used <= 0.01

    wait_for(rests, "rest")
    before = server.cpu_seconds()
    time.sleep(3)
    share = (server.cpu_seconds() - before) / 3
    assert share <= 0.01, f"{share:.1%} of a processor"


def drained(lathe, artifact):
    """SIGTERM under load: whatever had begun is answered."""
    with Server(lathe, [artifact], "--ctx", "1024", "--shutdown-timeout", "240") as server:  # beside other programs
        results = []

        def ask(stream):
            with server.connect() as s:
                s.sendall(request(server, {**CHAT, "max_tokens": 300, "stream": stream}).replace(b"Host:", b"Connection: close\r\nHost:"))
                got = b""
                while chunk := s.recv(65536):
                    got += chunk
                results.append(got)

        threads = [threading.Thread(target=ask, args=(i % 2 == 0,)) for i in range(12)]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.metric("http_requests_in_flight") >= 13, "twelve requests and the question")
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: server.process.poll() is not None or server.get("/ready")[0] in (0, 503), "draining")
        for thread in threads:
            thread.join()
        assert server.process.wait(250) == 0, server.errors()
        for got in results:
            assert got.startswith(b"HTTP/1.1 200"), got[:200]
            assert b"data: [DONE]" in got or b'"completion_tokens":300' in got, got[-300:]
        assert len(results) == 12


def restarts(lathe, artifact):
    """A second signal ends at once, and another start has the same port. How long it takes is printed."""
    with Server(lathe, [artifact], "--shutdown-timeout", "600", "--request-timeout", "0") as server:
        port = server.port
        with server.connect() as s:
            s.sendall(request(server, {**CHAT, "max_tokens": 8000, "stream": True}))
            s.recv(100)
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)  # the system may take two for one
            time.sleep(0.2)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(120) == 1, server.errors()  # 0: the answer ended by itself
    again = Server(lathe, [artifact])
    again.command[again.command.index("--port") + 1] = str(port)
    with again as server:
        assert server.port == port and server.get("/ready")[0] == 200
        print(f"     started in {server.start_seconds:.2f} s, {server.cpu_seconds():.2f} s of a processor")


def main():
    lathe, artifact = sys.argv[1:3]
    with Server(lathe, [artifact], "--served-name", "smol", "--max-queue", "16", "--max-seqs", "16", "--ctx", "1024") as server:
        failed = run_tests(sys.modules[__name__], server)
        if failed:
            print(server.errors())
    for check in (drained, restarts):
        try:
            check(lathe, artifact)
            print(f"ok   {check.__name__}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAIL {check.__name__}: {error}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
