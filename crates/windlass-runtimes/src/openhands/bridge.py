"""Connects Windlass with the agent server of OpenHands. Both run in the agent's enclosure, without outside access.

The server is a child process on the loopback of the enclosure. Requests arrive as JSON lines on standard input and go to
the server over HTTP; responses and the events of one conversation go to standard output as JSON lines. The bridge makes no
decisions and exits at the end of its input. Its arguments are for the server; with `agent-server PORT …` it is the server.
"""

import http.client
import json
import os
import queue
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

MAX_LINE = 16 << 20
MAX_WAITING = 64
WORKERS = 4
START_SECONDS = 170
ANSWER_SECONDS = 120
HOST = "127.0.0.1"

# Output of libraries must not mix with the protocol.
OUT = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
LOCK = threading.Lock()


def send_line(value):
    line = json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE:
        line = json.dumps({"id": value.get("id"), "status": 0, "error": "the message is longer than the limit of a line"}).encode() + b"\n"
    with LOCK:
        view = memoryview(line)
        while view:
            view = view[OUT.write(view):]


def serve(port, arguments):
    """Runs the server, without its own changes to the workspace."""
    from openhands.agent_server import __main__ as server
    from openhands.agent_server.event_service import EventService

    # It would create a git repository in a directory without one.
    EventService._ensure_workspace_is_git_repo = staticmethod(lambda working_dir: None)
    sys.argv = ["agent-server", "--host", HOST, "--port", port, *arguments]
    server.main()


class Server:
    """The child process and the connection to it."""

    def __init__(self):
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]
        self.key = secrets.token_hex(32)
        env = dict(os.environ, OH_SESSION_API_KEYS_0=self.key)
        argv = [sys.executable, "-I", os.path.abspath(__file__), "agent-server", str(self.port), *sys.argv[1:]]
        self.child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=2, env=env, cwd=os.environ["HOME"])

    def ask(self, method, path, body, seconds=ANSWER_SECONDS):
        connection = http.client.HTTPConnection(HOST, self.port, timeout=seconds)
        try:
            data = None if body is None else json.dumps(body)
            headers = {"X-Session-API-Key": self.key, "Content-Type": "application/json"}
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            text = answer.read(MAX_LINE)
            try:
                return answer.status, json.loads(text) if text else None
            except ValueError:
                return answer.status, text[:2000].decode("utf-8", "replace")
        finally:
            connection.close()

    def wait(self):
        """Waits until the server responds. Returns the reason if it never will."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self.child.poll() is not None:
                return "the server exited with code %s before it answered" % self.child.returncode
            try:
                if self.ask("GET", "/ready", None, seconds=10)[0] == 200:
                    return None
            except OSError:
                pass
            time.sleep(0.1)
        return "the server did not answer within %s seconds" % START_SECONDS

    def end(self):
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(1)
        except subprocess.TimeoutExpired:
            self.child.kill()


def follow(server, request):
    """Forwards the events of one conversation."""
    from websockets.sync.client import connect

    address = "ws://%s:%d/sockets/events/%s" % (HOST, server.port, request["follow"])
    try:
        with connect(address, max_size=MAX_LINE, ping_interval=None, compression=None, proxy=None) as connection:
            connection.send(json.dumps({"type": "auth", "session_api_key": server.key}))
            # The first event is the current state. No later event is missed.
            send_line({"event": json.loads(connection.recv(timeout=ANSWER_SECONDS))})
            send_line({"id": request["id"], "status": 200})
            for text in connection:
                send_line({"event": json.loads(text)})
        reason = "the server closed the event stream"
    except Exception as err:
        reason = "%s: %s" % (type(err).__name__, err)
    send_line({"id": request["id"], "status": 0, "error": reason, "lost": True})


def answer(server, request):
    number = request.get("id")
    try:
        path = request["path"]
        if not path.startswith("/api/"):
            raise ValueError("not a path of the server: %r" % path)
        status, body = server.ask(request["method"], path, request.get("body"))
        send_line({"id": number, "status": status, "body": body})
    except Exception as err:
        send_line({"id": number, "status": 0, "error": "%s: %s" % (type(err).__name__, err)})


def work(server, waiting):
    while True:
        answer(server, waiting.get())


def main():
    server = Server()
    reason = server.wait()
    if reason is not None:
        send_line({"failed": reason})
        server.end()
        return
    send_line({"ready": True})
    waiting = queue.Queue(MAX_WAITING)
    for _ in range(WORKERS):
        threading.Thread(target=work, args=(server, waiting), daemon=True).start()
    while True:
        line = sys.stdin.buffer.readline(MAX_LINE + 1)
        if not line or len(line) > MAX_LINE:
            break
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if "follow" in request:
            threading.Thread(target=follow, args=(server, request), daemon=True).start()
        else:
            waiting.put(request)
    server.end()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent-server"]:
        serve(sys.argv[2], sys.argv[3:])
    else:
        main()
