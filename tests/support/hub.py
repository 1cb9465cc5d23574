"""A model hub on the loopback interface that can cut connections, send wrong bytes and refuse requests."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c" * 40


class Hub:
    """Serves the same folder for every model.

    Attributes:
        url: the hub's address.
        harm: bytes that are sent in place of a file's, by the file's name.
        status: the status of all answers; with any but 200, no file is sent.
        cut: the number of bytes of a file after which the connection is closed.
        downloads: the files that were fetched.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.harm: dict[str, bytes] = {}
        self.status = 200
        self.cut: int | None = None
        self.downloads: list[str] = []

    def content(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@contextmanager
def serve_hub(folder: Path) -> Iterator[Hub]:
    """Serve a model's folder until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(send=False)

        def do_GET(self) -> None:
            self.answer(send=True)

        def answer(self, *, send: bool) -> None:
            path = self.path.partition("?")[0]
            if hub.status != 200:
                self.respond(hub.status, b"<html>not now</html>", {}, send=send)
            elif path.startswith("/api/models/"):
                files = [file for file in folder.rglob("*") if file.is_file()]
                siblings = [{"rfilename": str(file.relative_to(folder))} for file in files]
                about = {
                    "id": "a/model",
                    "modelId": "a/model",
                    "sha": COMMIT,
                    "siblings": siblings,
                    "tags": [],
                }
                about |= {"private": False, "downloads": 0, "likes": 0}
                self.respond(200, json.dumps(about).encode(), {"Content-Type": "application/json"}, send=send)
            else:
                name = path.partition(f"/resolve/{COMMIT}/")[2]
                content = hub.content(name)
                headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
                if send:
                    hub.downloads.append(name)
                self.respond(200, hub.harm.get(name, content), headers, send=send)

        def respond(self, status: int, body: bytes, headers: dict[str, str], *, send: bool) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if send:
                self.wfile.write(body[: hub.cut])
                if hub.cut is not None and len(body) > hub.cut:
                    self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(folder, f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
