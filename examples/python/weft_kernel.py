#!/usr/bin/env python3
"""A small kernel for weft: lists skills as a prompt and as tools, calls them, and lets a scripted model choose."""

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import types
import urllib.parse
import uuid

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_tools import protoc

# Exit codes, the same as those of `weft call`.
FAILED, NOT_FOUND, UNKNOWN, INTERRUPTED = 1, 3, 7, 130
OF_OUTCOME = {"DENIED": 4, "UNKNOWN": UNKNOWN, "TIMED_OUT": 124, "CANCELLED": INTERRUPTED}
OF_STATUS = {"INVALID_ARGUMENT": 2, "NOT_FOUND": NOT_FOUND, "FAILED_PRECONDITION": NOT_FOUND,
             "PERMISSION_DENIED": 4, "UNAUTHENTICATED": 4, "UNAVAILABLE": 6}
# Ask again: reasons of weft, and what a transport says when something between here and there breaks.
MOVED = ("STREAM_MOVED", "DRAINING")
TRANSIENT = ("UNAVAILABLE", "ABORTED", "CANCELLED", "UNKNOWN", "INTERNAL", "DEADLINE_EXCEEDED")
# Seconds of trying again: before the coordinator has answered at all, and to get back to an invocation.
PATIENCE_AT_FIRST, PATIENCE_LATER = 5, 60
NOTES = {
    "approval_pending": "waiting for the approval of {0.needed}", "progress": "{0.done}/{0.total} {0.text}",
    "node_lost": "node {0.node_id} is lost: {0.reason}", "gap": "{0.bytes} bytes of stderr were dropped",
}


def load_protos(proto, cache):
    """Everything in package weft.v1, compiled once for each content of the .proto files and kept in `cache`."""
    sources = sorted(proto.glob("weft/v1/*.proto"))
    if not sources:
        sys.exit(f"no protocol files in {proto}; say where they are with --proto")
    content = hashlib.sha256(importlib.metadata.version("grpcio-tools").encode())
    for source in sources:
        content.update(source.read_bytes())
    compiled = cache / content.hexdigest()[:16]
    if not compiled.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = tempfile.mkdtemp(dir=cache)
        google = pathlib.Path(protoc.__file__).parent / "_proto"
        options = [f"-I{proto}", f"-I{google}", f"--python_out={fresh}", f"--grpc_python_out={fresh}"]
        if protoc.main(["protoc", *options, *map(str, sources)]):
            sys.exit("the protocol files do not compile")
        with contextlib.suppress(OSError):  # another process was first
            os.rename(fresh, compiled)
        shutil.rmtree(fresh, ignore_errors=True)
    sys.path.insert(0, str(compiled))
    pb = types.SimpleNamespace()
    for name in ("types", "catalog", "session", "invocation"):
        for module in (f"{name}_pb2", f"{name}_pb2_grpc"):
            vars(pb).update(vars(importlib.import_module(f"weft.v1.{module}")))
    return pb


class Refused(Exception):
    """The coordinator said no, or is not there; `reason` is set when weft itself said it."""

    def __init__(self, error=None):
        self.code = error.code().name if error else "UNAVAILABLE"
        self.reason, self.metadata, self.exit_code = "", {}, OF_STATUS.get(self.code, FAILED)
        trailers = dict((error and error.trailing_metadata()) or ())
        for detail in status_pb2.Status.FromString(trailers.get("grpc-status-details-bin", b"")).details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info) and info.domain == "weft":
                self.reason, self.metadata = info.reason, info.metadata
        self.is_transient = self.reason in MOVED if self.reason else self.code in TRANSIENT
        message = error.details() if error else "the stream ended before the invocation did"
        super().__init__(f"{self.reason or self.code}: {message}")


class Invocation:
    """One invocation: its events once each and in order, however often the stream breaks."""

    def __init__(self, kernel, skill, args, session=""):
        self.kernel, self.pb = kernel, kernel.pb
        self.id, self.sequence, self.finished, self.chunks = "", 0, None, bytearray()
        # The request id makes a second try attach to the first one instead of running the skill twice.
        ids = {"agent": kernel.agent, "session_id": session, "request_id": str(uuid.uuid4())}
        self.request = self.pb.InvokeRequest(invocation=self.pb.InvocationRequest(skill=skill, args=args, **ids))

    def open(self):
        if not self.id:
            return self.kernel.invocations.Invoke(self.request)
        again = self.pb.WatchInvocationRequest(invocation_id=self.id, after_sequence=self.sequence)
        return self.kernel.invocations.WatchInvocation(again)

    def events(self):
        """Yields every event up to the final one; raises Refused."""
        broken_since, pause = None, 0.25
        while True:
            lost = Refused()
            try:
                for message in self.open():
                    broken_since, pause = None, 0.25
                    self.id = self.id or message.invocation_id
                    if message.WhichOneof("message") == "event" and message.event.sequence > self.sequence:
                        self.sequence = message.event.sequence
                        yield message.event
                        if message.event.WhichOneof("event") == "finished":
                            return
            except grpc.RpcError as error:
                lost = Refused(error)
            if self.id and lost.code in ("NOT_FOUND", "OUT_OF_RANGE"):
                lost.exit_code = UNKNOWN  # it was admitted, and now nobody can tell how it ended
            self.id = self.id or lost.metadata.get("invocation_id", "")
            broken_since = broken_since or time.monotonic()
            patience = PATIENCE_LATER if self.id else PATIENCE_AT_FIRST
            if not lost.is_transient or time.monotonic() - broken_since > patience:
                raise lost
            note(f"{lost}; trying again after event {self.sequence}")
            time.sleep(pause)
            pause = min(pause * 2, 5)

    def run(self):
        """Shows on stderr what happens; returns the exit code and the bytes of the result."""
        try:
            for event in self.events():
                kind = event.WhichOneof("event")
                self.show(kind, kind and getattr(event, kind))
        except Refused as refused:
            note(f"{refused} (invocation {self.id or '-'})")
            return refused.exit_code, b""
        except KeyboardInterrupt:
            cancel = self.pb.CancelInvocationRequest(invocation_id=self.id)
            with contextlib.suppress(grpc.RpcError):  # hanging up cancels nothing
                self.kernel.invocations.CancelInvocation(cancel, timeout=10)
            return INTERRUPTED, b""
        end = self.finished
        outcome = self.pb.Outcome.Name(end.outcome).removeprefix("OUTCOME_")
        if outcome != "SUCCEEDED":
            note(f"{outcome}: {end.message} (invocation {self.id}, node {end.node_id or '-'})")
            return OF_OUTCOME.get(outcome, FAILED), b""
        if end.WhichOneof("result") != "chunked":
            return 0, end.inline
        announced = end.chunked.size, end.chunked.digest.removeprefix("sha256:")
        if announced != (len(self.chunks), hashlib.sha256(self.chunks).hexdigest()):
            note(f"the chunks are not the result that was announced (invocation {self.id})")
            return FAILED, b""
        return 0, bytes(self.chunks)

    def show(self, kind, event):
        if kind == "stderr":
            sys.stderr.buffer.write(event.data)
            sys.stderr.flush()
        elif kind in NOTES:
            note(NOTES[kind].format(event))
        elif kind == "output_chunk":
            del self.chunks[event.offset :]  # another attempt sends its result from the start
            self.chunks += event.data
        elif kind == "finished":
            self.finished = event


class Session:
    """What the agent sees, held still while it works: taken anew between its turns and never within one."""

    def __init__(self, kernel):
        self.kernel, self.pb, self.id, self.snapshot = kernel, kernel.pb, "", None

    def begin_turn(self):
        """Returns the keys of the skills that can be called, by tool name."""
        known = self.snapshot.digest if self.snapshot else ""
        request = self.pb.GetSessionRequest(session_id=self.id, begin_turn=True, known_snapshot=known)
        try:
            answer = self.kernel.sessions.GetSession(request, timeout=30)
        except grpc.RpcError as error:
            # There is none yet, or it was idle for long, or the coordinator has started anew.
            if Refused(error).reason != "SESSION_NOT_FOUND":
                raise
            opening = self.pb.OpenSessionRequest(agent=self.kernel.agent)
            answer = self.kernel.sessions.OpenSession(opening, timeout=30)
        self.id = answer.session.id
        if answer.HasField("snapshot"):  # else it is the one that is here
            self.snapshot = answer.snapshot
        return {skill.tool_name: skill.key for skill in self.snapshot.skills
                if skill.kind == self.pb.SKILL_KIND_EXECUTABLE and not skill.hidden_from_prompts}

    def close(self):
        with contextlib.suppress(grpc.RpcError):  # it ends by itself when nobody uses it
            self.kernel.sessions.CloseSession(self.pb.CloseSessionRequest(session_id=self.id), timeout=10)


class Kernel:
    """A connection to a coordinator."""

    def __init__(self, coordinator, agent, pb):
        url = urllib.parse.urlsplit(coordinator)
        if url.scheme not in ("http", "https") or not url.netloc:
            sys.exit(f"{coordinator} is not an http:// or https:// address")
        # Keepalive finds a dead connection under a silent stream.
        options = [("grpc.keepalive_time_ms", 20_000), ("grpc.max_reconnect_backoff_ms", 2_000)]
        tls = [grpc.ssl_channel_credentials()] if url.scheme == "https" else []
        channel = (grpc.secure_channel if tls else grpc.insecure_channel)(url.netloc, *tls, options=options)
        self.pb, self.agent = pb, agent
        self.catalog, self.invocations = pb.CatalogServiceStub(channel), pb.InvocationServiceStub(channel)
        self.sessions = pb.SessionServiceStub(channel)

    def skills(self):
        """What a model may be offered: what can be run now and is not hidden from prompts."""
        found, token = [], None
        while token != "":
            request = self.pb.ListSkillsRequest(agent=self.agent, page_size=1000, page_token=token)
            page = self.catalog.ListSkills(request, timeout=30)
            found, token = found + list(page.skills), page.next_page_token
        shown = (skill for skill in found if not skill.definition.hidden_from_prompts)
        return [skill for skill in shown if skill.definition.kind == self.pb.SKILL_KIND_EXECUTABLE]

    def tools(self):
        """The skills as tool definitions for a model."""
        return [{"type": "function", "function": {
            "name": skill.tool_name, "description": skill.definition.description,
            "parameters": json.loads(skill.definition.schema),
        }} for skill in self.skills()]

    def prompt(self):
        """The list of skills that goes into the system prompt."""
        return self.catalog.RenderPrompt(self.pb.RenderPromptRequest(agent=self.agent), timeout=30).text

    def chat(self, script):
        """A model that reads its tool calls from a script, `TOOL [ARGS]` a line; prints the conversation."""
        session = Session(self)
        try:
            return self.play(session, script)
        finally:
            session.close()

    def play(self, session, script):
        """Each line of the script is a turn of the model."""
        worst = 0
        lines = [line.strip() for line in script if line.strip() and not line.startswith("#")]
        for number, line in enumerate(lines, 1):
            keys = session.begin_turn()
            name, _, args = line.partition(" ")
            call = {"name": name, "arguments": args.strip() or "{}"}
            calls = [{"id": f"call_{number}", "type": "function", "function": call}]
            print(json.dumps({"role": "assistant", "tool_calls": calls}), flush=True)
            code, result, trouble = NOT_FOUND, b"", f"there is no tool {name}"
            if name in keys:
                code, result = Invocation(self, keys[name], call["arguments"].encode(), session.id).run()
                trouble = f"the tool did not succeed, exit code {code}"
            content = result.decode() or json.dumps({"error": trouble})
            print(json.dumps({"role": "tool", "tool_call_id": f"call_{number}", "content": content}), flush=True)
            worst = worst or code
        return worst


def note(text):
    print(f"weft: {text}", file=sys.stderr, flush=True)


def main():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache", "weft-kernel")
    proto = pathlib.Path(__file__).resolve().parents[2] / "proto"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", default=os.environ.get("WEFT_COORDINATOR") or "http://127.0.0.1:9338")
    parser.add_argument("--agent", default="", help="the agent whose skills are meant")
    parser.add_argument("--proto", type=pathlib.Path, default=proto, help="directory of the protocol files")
    parser.add_argument("--cache", type=pathlib.Path, default=cache, help="directory for what is compiled from them")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("tools", help="print the skills as tool definitions")
    commands.add_parser("prompt", help="print the list of skills for a system prompt")
    call = commands.add_parser("call", help="call one skill; stdout is its result")
    call.add_argument("name")
    call.add_argument("--args", default="{}", help="args as one JSON object")
    chat = commands.add_parser("chat", help="let a scripted model call tools")
    chat.add_argument("script", nargs="?", type=argparse.FileType(), default=sys.stdin, help="lines of TOOL [ARGS]")
    options = parser.parse_args()
    kernel = Kernel(options.coordinator, options.agent, load_protos(options.proto.resolve(), options.cache))
    try:
        if options.command == "tools":
            print(json.dumps(kernel.tools(), indent=2))
            return 0
        if options.command == "prompt":
            print(kernel.prompt())
            return 0
        if options.command == "chat":
            return kernel.chat(options.script)
        code, result = Invocation(kernel, options.name, options.args.encode()).run()
        sys.stdout.buffer.write(result.removesuffix(b"\n") + b"\n" if result else b"")
        return code
    except grpc.RpcError as error:
        note(refused := Refused(error))
        return refused.exit_code


if __name__ == "__main__":
    sys.exit(main())
