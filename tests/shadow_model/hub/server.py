"""A local server that speaks the Hub's calls which a run makes, and fails as it is told to."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_" + "localtoken0123456789"
Fault = Callable[["_Handler"], bool]


class HubServer(ThreadingHTTPServer):
    """Repositories in memory.

    Attributes:
        files: Repository -> path -> content, of the newest commit.
        commits: Repository and message of each commit.
        calls: "METHOD path" of each call.
        faults: Each takes one call that comes, until none is left: true if it has answered it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.commits: list[tuple[str, str]] = []
        self.calls: list[str] = []
        self.faults: list[Fault] = []
        self.always: Fault | None = None
        self.lfs: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Address to be given as HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def commit(self) -> str:
        """Id of the newest commit."""
        return hashlib.sha1(str(len(self.commits)).encode()).hexdigest()


def answers(status: int, **headers: str) -> Fault:
    """Return a fault that answers with a status."""

    def answer(handler: "_Handler") -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.send(status, {"error": "fault"}, named)
        return True

    return answer


def drops(handler: "_Handler") -> bool:
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.close()
    return True


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def _serve(self) -> None:
        server = self.server
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        path = self.path.partition("?")[0]
        server.calls.append(f"{self.command} {path}")
        fault = server.faults.pop(0) if server.faults else server.always
        if fault is not None and fault(self):
            return
        for pattern, name in _ROUTES:
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                getattr(self, name)(*found.groups())
                return
        self.send(404, {"error": f"no such call: {self.command} {path}"})

    do_GET = do_POST = do_PUT = do_HEAD = _serve  # noqa: N815

    def send(self, status: int, content: Any, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def create(self) -> None:
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send(401, {"error": "who are you?"})
            return
        wanted = json.loads(self.body)
        repo = f"{wanted['organization']}/{wanted['name']}" if "organization" in wanted else ""
        known = repo in self.server.files
        self.server.files.setdefault(repo, {})
        self.send(409 if known else 200, {"url": f"{self.server.url}/datasets/{repo}", "id": repo})

    def preupload(self, repo: str) -> None:
        files = self.server.files[repo]
        told = []
        for file in json.loads(self.body)["files"]:
            content = files.get(file["path"])
            told.append(
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                    "oid": _oid(file["path"], content) if content is not None else None,
                }
            )
        self.send(200, {"files": told})

    def lfs_batch(self, _repo: str) -> None:
        objects = []
        for one in json.loads(self.body)["objects"]:
            action = {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}", "header": {}}}
            known = one["oid"] in self.server.lfs
            objects.append(one if known else {**one, "actions": action})
        self.send(200, {"transfer": "basic", "objects": objects})

    def lfs_put(self, oid: str) -> None:
        self.server.lfs[oid] = self.body
        self.send(200, {})

    def make_commit(self, repo: str) -> None:
        message, files = "", self.server.files[repo]
        for line in self.body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                message = value["summary"]
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.server.lfs[value["oid"]]
        self.server.commits.append((repo, message))
        commit = self.server.commit
        url = f"{self.server.url}/datasets/{repo}/commit/{commit}"
        self.send(200, {"commitOid": commit, "commitUrl": url, "success": True})

    def info(self, repo: str, _revision: str | None = None) -> None:
        if repo not in self.server.files:
            self.send(404, {"error": "none"}, {"X-Error-Code": "RepoNotFound"})
            return
        siblings = [{"rfilename": name} for name in sorted(self.server.files[repo])]
        told = {"id": repo, "sha": self.server.commit, "siblings": siblings, "private": True}
        self.send(200, {**told, "tags": [], "downloads": 0, "likes": 0, "disabled": False})

    def tree(self, repo: str, _revision: str) -> None:
        files = self.server.files[repo]
        entries = [
            {"type": "file", "path": name, "size": len(content), "oid": _oid(name, content)}
            for name, content in sorted(files.items())
        ]
        self.send(200, entries)

    def resolve(self, repo: str, _revision: str, name: str) -> None:
        content = self.server.files[repo].get(name)
        if content is None:
            self.send(404, {"error": "none"}, {"X-Error-Code": "EntryNotFound"})
            return
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self.send(200, content, {"ETag": etag, "X-Repo-Commit": self.server.commit})

    def validate(self) -> None:
        self.send(200, {"errors": [], "warnings": []})

    def log_message(self, *_arguments: object) -> None:
        return


def _oid(path: str, content: bytes) -> str:
    """Return the digest by which unchanged files are known: git's, or LFS's sha256."""
    if path.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


_REPO = r"([\w.-]+/[\w.-]+)"
_ROUTES = (
    (r"POST /api/repos/create", "create"),
    (r"POST /api/validate-yaml", "validate"),
    (rf"POST /api/datasets/{_REPO}/preupload/main", "preupload"),
    (rf"POST /datasets/{_REPO}\.git/info/lfs/objects/batch", "lfs_batch"),
    (r"PUT /lfs/(\w+)", "lfs_put"),
    (rf"POST /api/datasets/{_REPO}/commit/main", "make_commit"),
    (rf"GET /api/datasets/{_REPO}", "info"),
    (rf"GET /api/datasets/{_REPO}/revision/(\w+)", "info"),
    (rf"GET /api/datasets/{_REPO}/tree/(\w+)", "tree"),
    (rf"(?:GET|HEAD) /datasets/{_REPO}/resolve/(\w+)/(.+)", "resolve"),
)
