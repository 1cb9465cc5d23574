"""A model on loopback that calls a tool once and then answers, for findings in Python."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

CALL = {"id": "call_7", "type": "function", "function": {"name": "weigh", "arguments": '{"what": "loaf"}'}}


def weigh(what: str) -> str:
    """Weigh a thing."""
    return "812 g"


def serve(text: str | None) -> str:
    """Serve a model that says a text, or None, beside its call; return its address."""
    answers = [{"content": text, "tool_calls": [CALL]}, {"content": "It weighs 812 g."}]

    class Model(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            message = {"role": "assistant", **answers.pop(0)}
            choice = {"index": 0, "finish_reason": "tool_calls" if answers else "stop", "message": message}
            kind = {"id": "1", "object": "chat.completion", "created": 1, "model": "scripted"}
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps({**kind, "choices": [choice]}).encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"
