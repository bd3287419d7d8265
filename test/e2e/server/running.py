"""A `lathe serve` for the length of a with block, and a runner for the functions named test_* of a module."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback


class Server:
    def __init__(self, lathe, files, *options):
        self.command = [lathe, "serve", *files, "--port", "0", *options]

    def __enter__(self):
        self.log = tempfile.TemporaryFile("w+")
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        self.start_seconds = time.monotonic() - began
        found = re.match(r"listening on http://([^:]+):(\d+)$", line.strip())
        if not found:
            self.process.wait()
            raise AssertionError(f"the server does not start: {line}{self.errors()}")
        self.host, self.port = found[1], int(found[2])
        self.url = f"http://{self.host}:{self.port}"
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def memory(self):
        """Resident bytes that are the process's own: without the mapped artifact."""
        with open(f"/proc/{self.process.pid}/statm") as statm:
            fields = statm.read().split()
        return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def connect(self, receive_buffer=0):
        s = socket.socket()
        if receive_buffer:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        s.settimeout(300)  # beside other programs
        s.connect((self.host, self.port))
        return s

    def raw(self, data, sent=None):
        """Sends bytes, which the event |sent| tells of; the status and body of what comes back until the end of the connection."""
        with self.connect() as s:
            s.sendall(data)
            if sent:
                sent.set()
            got = b""
            try:
                while chunk := s.recv(65536):
                    got += chunk
            except ConnectionResetError:
                pass
        head, _, body = got.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body

    def post(self, path, body, headers="", sent=None):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n{headers}Content-Length: {len(data)}\r\n\r\n"
        return self.raw(head.encode() + data, sent)

    def get(self, path):
        return self.raw(f"GET {path} HTTP/1.1\r\nHost: {self.host}\r\nConnection: close\r\n\r\n".encode())

    def metric(self, name):
        """Sum of a metric over its labels."""
        text = self.get("/metrics")[1].decode()
        values = [float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
                  if re.match(rf"lathe:{name}(\{{.*\}})? ", line)]
        return sum(values)


def wait_for(condition, what, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen within {seconds} s: {what}"
        time.sleep(0.02)


def run_tests(module, *arguments):
    """Runs every test_* function; the exit status says whether all passed."""
    failed = 0
    for name, function in list(vars(module).items()):
        if not name.startswith("test_"):
            continue
        try:
            function(*arguments)
            print(f"ok   {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL {name}", flush=True)
            traceback.print_exc(file=sys.stdout)
    return failed
