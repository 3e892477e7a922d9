#!/usr/bin/env python3
"""Resolves a name and connects to its addresses: args as JSON on stdin, one JSON object on stdout, steps on stderr."""

import json
import socket
import sys
import threading
import time

MEMBERS = {"host", "port", "family", "timeout_seconds"}
FAMILIES = {"any": socket.AF_UNSPEC, "ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}
NAMES = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
# No more are connected to: with the longest time-out they fit into the manifest's.
MAX_ADDRESSES = 16


def read_args(data):
    """Host, port, family and time-out; raises ValueError with what is wrong."""
    args = json.loads(data) if data.strip() else {}
    if not isinstance(args, dict):
        raise ValueError("not a JSON object")
    if unknown := args.keys() - MEMBERS:
        raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
    host, port, family = args.get("host"), args.get("port"), args.get("family", "any")
    if not isinstance(host, str) or not 1 <= len(host) <= 253:
        raise ValueError("host is missing or not a string of 1 to 253 characters")
    if any(c.isspace() or not c.isprintable() or c in "/@[]" for c in host):
        raise ValueError("host is not a name or an address: it holds blanks, control characters or one of /@[]")
    if "port" in args and (type(port) not in (int, float) or port != port // 1 or not 1 <= port <= 65535):
        raise ValueError("port is not an integer from 1 to 65535")
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError("family is not any, ipv4 or ipv6")
    timeout = args.get("timeout_seconds", 3)
    if type(timeout) not in (int, float) or not 0.1 <= timeout <= 5:
        raise ValueError("timeout_seconds is not a number from 0.1 to 5")
    return host, port and int(port), FAMILIES[family], timeout


def say(line):
    print(line, file=sys.stderr, flush=True)


def since(start):
    """Milliseconds from a start until now."""
    return round((time.monotonic() - start) * 1000, 1)


def resolve(host, port, family, timeout):
    """The addresses of a name, each once, and how the look-up went."""
    answer = []

    def ask():
        try:
            name = host if ":" in host or host.isascii() else host.encode("idna").decode()
            answer.append(socket.getaddrinfo(name, port or 0, family, socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    # A name server that is silent can hold the look-up for long, and nothing can end it but to leave it behind.
    start = time.monotonic()
    worker = threading.Thread(target=ask, daemon=True)
    worker.start()
    worker.join(timeout)
    lookup = {"ok": False, "ms": since(start)}
    if not answer:
        return [], lookup | {"error": f"no answer within {timeout} s"}
    if isinstance(answer[0], Exception):
        return [], lookup | {"error": f"{type(answer[0]).__name__}: {answer[0]}"}
    found = {row[4]: row[0] for row in answer[0] if row[0] in NAMES}
    return list(found.items()), lookup | {"ok": bool(found)}


def connect(family, address, timeout):
    """Connects to one address, and hangs up."""
    start = time.monotonic()
    try:
        with socket.socket(family, socket.SOCK_STREAM) as stream:
            stream.settimeout(timeout)
            stream.connect(address)
            return {"ok": True, "connect_ms": since(start)}
    except TimeoutError:
        return {"ok": False, "connect_ms": since(start), "error": f"no answer within {timeout} s"}
    except OSError as error:
        return {"ok": False, "connect_ms": since(start), "error": f"{type(error).__name__}: {error}"}


def main():
    try:
        host, port, family, timeout = read_args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"dns_tcp_probe: cannot read args: {error}", file=sys.stderr)
        return 2
    found, lookup = resolve(host, port, family, timeout)
    outcome = f"{len(found)} addresses" if lookup["ok"] else ascii(lookup.get("error", "no address"))[1:-1]
    say(f"look-up of {ascii(host)[1:-1]}: {outcome} in {lookup['ms']} ms")
    addresses = []
    for address, its_family in found[:MAX_ADDRESSES]:
        row = {"address": address[0], "family": NAMES[its_family]}
        if port:
            row |= connect(its_family, address, timeout)
            outcome = "connected" if row["ok"] else ascii(row["error"])[1:-1]
            say(f"{row['address']} port {port}: {outcome} in {row['connect_ms']} ms")
        addresses.append(row)
    connected = sum(row.get("ok", False) for row in addresses)
    summary = {"addresses": len(found)}
    if port:
        summary |= {"tried": len(addresses), "connected": connected, "failed": len(addresses) - connected}
    result = {
        "ok": lookup["ok"] and (connected > 0 or port is None),
        "host": host,
        "port": port,
        "lookup": lookup,
        "addresses": addresses,
        "summary": summary,
    }
    json.dump(result, sys.stdout)
    print(flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
