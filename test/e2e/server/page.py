#!/usr/bin/env python3
"""The built-in page in headless Chromium, over the DevTools protocol. usage: page.py LATHE ARTIFACT CHROMIUM SCREENSHOT.png

Types a key and a message as a person would, and looks at what the page then shows. The model's answer is checked to be text:
a server that answers with markup must not get elements into the page.
"""
import base64
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import websockets.sync.client

from running import Server, wait_for

lathe, artifact, chromium, screenshot = sys.argv[1:5]


class Browser:
    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
             f"--user-data-dir={self.folder.name}", "--window-size=1100,760", "--no-first-run", "--disable-background-networking",
             "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        port_file = os.path.join(self.folder.name, "DevToolsActivePort")
        wait_for(lambda: os.path.exists(port_file) and open(port_file).read().count("\n") >= 1, "the browser's port")
        port = open(port_file).readline().strip()
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        url = next(p for p in pages if p["type"] == "page")["webSocketDebuggerUrl"]
        self.connection = websockets.sync.client.connect(url, max_size=None)
        self.socket = self.connection.__enter__()
        self.number = 0
        self.messages = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        return self

    def __exit__(self, *_):
        self.connection.__exit__(None, None, None)
        self.process.terminate()
        self.process.wait(20)
        self.folder.cleanup()

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]
            self.messages.append(message)

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def type(self, element, text):
        self.run(f"document.getElementById('{element}').focus()")
        self.call("Input.insertText", text=text)

    def enter(self):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")

    def complaints(self):
        """Errors of scripts and of the content policy."""
        return [m for m in self.messages if m["method"] == "Runtime.exceptionThrown" or
                (m["method"] == "Log.entryAdded" and m["params"]["entry"]["level"] == "error" and "401" not in m["params"]["entry"]["text"])]


def chat(browser, server):
    browser.call("Page.navigate", url=server.url + "/")
    wait_for(lambda: "asks for a key" in (browser.run("document.getElementById('status')?.textContent") or ""), "the question for a key")
    browser.type("key", "sk-page-test-key")
    browser.run("document.getElementById('key').dispatchEvent(new Event('change'))")
    wait_for(lambda: browser.run("document.getElementById('model').value") == "smollm2-135m", "the model's name")
    browser.type("temperature", "0")
    browser.run("document.getElementById('tokens').value = 90")
    browser.type("text", "Why is the sky blue? Answer in two sentences.")
    browser.enter()
    wait_for(lambda: browser.run("document.querySelectorAll('.figures').length") == 1, "an answer with its figures")
    answer = browser.run("document.querySelector('.assistant').firstChild.data")
    assert len(answer) > 20, answer
    assert "tokens/s" in browser.run("document.querySelector('.figures').textContent")
    browser.type("text", "And at sunset?")
    browser.enter()
    wait_for(lambda: browser.run("document.querySelectorAll('.figures').length") == 2, "a second answer")
    assert "cached" in browser.run("document.querySelectorAll('.figures')[1].textContent")
    wait_for(lambda: browser.run("document.querySelectorAll('#gauges dd').length") >= 10, "gauges")
    assert browser.run("JSON.stringify([localStorage.length, sessionStorage.length, document.cookie])") == '[0,0,""]'
    time.sleep(2.5)  # one more reading of the gauges, for the picture
    open(screenshot, "wb").write(base64.b64decode(browser.call("Page.captureScreenshot", format="png")["data"]))


def markup(browser, server):
    """An answer that is markup shows as text."""
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    page = {path: server.get(path)[1] for path in ("/", "/page.js", "/page.css")}

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def answer(self, kind, body):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            kinds = {"/": "text/html", "/page.js": "text/javascript", "/page.css": "text/css"}
            if self.path in kinds:
                self.answer(kinds[self.path], page[self.path])
            else:
                self.answer("application/json", json.dumps({"data": [{"id": evil}]}).encode())

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            piece = json.dumps({"choices": [{"delta": {"content": evil}}]})
            self.answer("text/event-stream", f"data: {piece}\n\ndata: [DONE]\n\n".encode())

    stub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=stub.serve_forever, daemon=True).start()
    browser.call("Page.navigate", url=f"http://127.0.0.1:{stub.server_port}/")
    wait_for(lambda: browser.run("document.getElementById('model')?.value") == evil, "the name as text")
    browser.type("text", "hello")
    browser.enter()
    wait_for(lambda: browser.run("document.querySelector('.assistant')?.textContent") == evil, "the answer as text")
    assert browser.run("document.querySelectorAll('#chat img, #chat script').length") == 0
    assert browser.run("document.title") == "Lathe"
    stub.shutdown()


with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as keys:
    keys.write('{"name": "page", "key": "sk-page-test-key"}\n')
    keys.flush()
    with Server(lathe, [artifact], "--served-name", "smollm2-135m", "--ctx", "2048", "--api-key-file", keys.name) as running, Browser() as window:
        chat(window, running)
        assert not window.complaints(), window.complaints()
        markup(window, running)
        print("page: key, chat, gauges, markup stays text; " + screenshot)
