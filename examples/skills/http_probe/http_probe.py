#!/usr/bin/env python3
"""Probes a URL: args as JSON on stdin, one JSON object on stdout, a line per probe on stderr."""

import http.client
import json
import socket
import ssl
import statistics
import sys
import threading
import time
from urllib.parse import quote, urlsplit

# A body is read up to here, enough to time it.
BODY_LIMIT = 1024 * 1024
METHODS = ("GET", "HEAD", "OPTIONS")


def number(args, name, default, low, high, whole=True):
    """A number among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if name not in args:
        return default
    if type(value) not in (int, float) or not low <= value <= high or (whole and value != value // 1):
        raise ValueError(f"{name} is not {'an integer' if whole else 'a number'} from {low} to {high}")
    return int(value) if whole else value


class Target:
    """What to ask for; raises ValueError with what is wrong with the args."""

    def __init__(self, data):
        args = json.loads(data) if data.strip() else {}
        if not isinstance(args, dict):
            raise ValueError("not a JSON object")
        if unknown := args.keys() - {"url", "method", "timeout_seconds", "expect_status", "count"}:
            raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
        self.url, self.method = args.get("url"), args.get("method", "GET")
        if not isinstance(self.url, str):
            raise ValueError("url is missing or not a string")
        if self.method not in METHODS:
            raise ValueError(f"method is not one of {', '.join(METHODS)}")
        self.timeout = number(args, "timeout_seconds", 5, 0.1, 10, whole=False)
        self.expected = number(args, "expect_status", None, 100, 599)
        self.count = number(args, "count", 1, 1, 10)
        if any(c.isspace() or not c.isprintable() for c in self.url):
            raise ValueError("url holds blanks or control characters")
        url = urlsplit(self.url)
        if url.scheme not in ("http", "https"):
            raise ValueError("url is neither http nor https")
        if "@" in url.netloc or not url.hostname:
            raise ValueError("url has no host, or a user name in front of it")
        if url.port == 0:
            raise ValueError("url has port 0")
        self.tls = url.scheme == "https"
        self.host = url.hostname if ":" in url.hostname else url.hostname.encode("idna").decode()
        self.port = url.port or (443 if self.tls else 80)
        self.path = quote(url.path or "/", safe="/%:@!$&'()*+,;=~")
        if url.query:
            self.path += "?" + quote(url.query, safe="/%:@!$&'()*+,;=~?")

    def is_ok(self, status):
        """Whether a status is what the caller hopes for."""
        return status == self.expected if self.expected else 200 <= status < 400


def ask(target, probe):
    """Asks once and writes down in `probe` what it learns, as it learns it."""
    start = last = time.monotonic()

    def lap(name):
        nonlocal last
        now = time.monotonic()
        probe["timings_ms"][name] = round((now - last) * 1000, 1)
        last = now

    addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    lap("lookup")
    for family, kind, protocol, _, address in addresses:
        probe["address"] = address[0]
        stream = socket.socket(family, kind, protocol)
        stream.settimeout(target.timeout)
        try:
            stream.connect(address)
            break
        except OSError as error:
            stream.close()
            failure = error
    else:
        raise failure
    lap("connect")
    with stream:
        connection = http.client.HTTPConnection(target.host, target.port)
        if target.tls:
            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=target.host)
            expires = ssl.cert_time_to_seconds(stream.getpeercert()["notAfter"])
            probe["tls"] = {"version": stream.version(), "expires_in_days": int((expires - time.time()) // 86400)}
            connection = http.client.HTTPSConnection(target.host, target.port)
            lap("tls")
        connection.sock = stream
        headers = {"User-Agent": "weft-http-probe/1", "Connection": "close"}
        connection.request(target.method, target.path, headers=headers)
        with connection.getresponse() as response:
            lap("first_byte")
            probe["status"] = response.status
            if location := response.getheader("Location"):
                probe["location"] = location
            probe["header_bytes"] = sum(len(name) + len(value) + 4 for name, value in response.getheaders())
            probe["body_bytes"] = 0
            while probe["body_bytes"] < BODY_LIMIT and (part := response.read1(65536)):
                probe["body_bytes"] += len(part)
            if probe["body_bytes"] >= BODY_LIMIT:
                probe["body_cut"] = True
            elif response.length and target.method != "HEAD":
                raise http.client.IncompleteRead(b"", response.length)
            lap("body")
    probe["timings_ms"]["total"] = round((time.monotonic() - start) * 1000, 1)
    probe["ok"] = target.is_ok(response.status)
    if not probe["ok"]:
        probe["error"] = f"status {response.status}, expected {target.expected or '200 to 399'}"


def attempt(target):
    """One probe, ended after its time-out whatever it waits for: a name server, a handshake, a slow drip."""
    learned = {"ok": False, "timings_ms": {}}

    def guarded():
        try:
            ask(target, learned)
        except (OSError, http.client.HTTPException, ValueError) as error:
            learned["error"] = f"{type(error).__name__}: {error}"

    worker = threading.Thread(target=guarded, daemon=True)
    worker.start()
    worker.join(target.timeout)
    if not worker.is_alive():
        return learned
    # The thread may still write to what it has: go on with a copy.
    late = dict(list(learned.items()), timings_ms=dict(list(learned["timings_ms"].items())))
    return late | {"ok": False, "error": f"no complete answer within {target.timeout} s"}


def summary(probes):
    """How many were ok, and the times of those that were answered."""
    totals = [probe["timings_ms"]["total"] for probe in probes if "total" in probe["timings_ms"]]
    ok = sum(probe["ok"] for probe in probes)
    result = {"probes": len(probes), "ok": ok, "failed": len(probes) - ok}
    if totals:
        result["total_ms"] = {"min": min(totals), "median": round(statistics.median(totals), 1), "max": max(totals)}
    return result


def main():
    try:
        target = Target(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"http_probe: cannot read args: {error}", file=sys.stderr)
        return 2
    probes = []
    for i in range(target.count):
        probe = attempt(target)
        probes.append(probe)
        took = f" in {probe['timings_ms']['total']} ms" if "total" in probe["timings_ms"] else ""
        what = f"status {probe['status']}{took}" if probe["ok"] else ascii(probe["error"])[1:-1]
        print(f"probe {i + 1}/{target.count}: {'ok' if probe['ok'] else 'not ok'}: {what}", file=sys.stderr, flush=True)
    result = {
        "ok": all(probe["ok"] for probe in probes),
        "url": target.url,
        "method": target.method,
        "status": probes[-1].get("status"),
        "summary": summary(probes),
        "probes": probes,
    }
    json.dump(result, sys.stdout)
    print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
