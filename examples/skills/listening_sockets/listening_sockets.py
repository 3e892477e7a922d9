#!/usr/bin/env python3
"""Lists listening sockets: args as JSON on stdin, one JSON object on stdout, progress on stderr."""

import ipaddress
import json
import pathlib
import struct
import sys

TABLES = {"tcp": 4, "tcp6": 6, "udp": 4, "udp6": 6}
# The state column of a TCP socket that listens, and of a UDP socket that is bound and not connected.
LISTENING = {"tcp": "0A", "udp": "07"}


def read_args(data):
    """The protocol and the port that are asked for; raises ValueError with what is wrong."""
    args = json.loads(data) if data.strip() else {}
    if not isinstance(args, dict):
        raise ValueError("not a JSON object")
    if unknown := args.keys() - {"protocol", "port"}:
        raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
    protocol, port = args.get("protocol", "all"), args.get("port")
    if protocol not in ("tcp", "udp", "all"):
        raise ValueError("protocol is not tcp, udp or all")
    if "port" in args and (type(port) not in (int, float) or port != port // 1 or not 1 <= port <= 65535):
        raise ValueError("port is not an integer from 1 to 65535")
    return protocol, port


def address(text):
    """`0100007F` as `127.0.0.1`: the kernel prints 32-bit words in its own byte order."""
    words = (int(text[i : i + 8], 16) for i in range(0, len(text), 8))
    packed = b"".join(struct.pack("=I", word) for word in words)
    ip = ipaddress.ip_address(packed)
    mapped = getattr(ip, "ipv4_mapped", None)
    return f"::ffff:{mapped}" if mapped else str(ip)


def sockets(table, protocol):
    """The listening sockets of one table of the kernel, each once."""
    found = {}
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or fields[3] != LISTENING[protocol]:
            continue
        ip, port = fields[1].split(":")
        row = {
            "protocol": protocol,
            "address": address(ip),
            "port": int(port, 16),
            "uid": int(fields[7]),
            "inode": int(fields[9]),
        }
        # The kernel may repeat a row when the table changes while it is read.
        found[tuple(row.values())] = row
    return [found[key] for key in sorted(found, key=lambda key: (key[2], key[1], key[4]))]


def main():
    try:
        wanted, port = read_args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"listening_sockets: cannot read args: {error}", file=sys.stderr)
        return 2
    result = []
    for name, version in TABLES.items():
        protocol = name.removesuffix("6")
        if wanted not in ("all", protocol):
            continue
        try:
            table = pathlib.Path("/proc/net", name).read_text(encoding="ascii")
        except FileNotFoundError:
            print(f"{name}: not there, IPv{version} is off", file=sys.stderr)
            continue
        except OSError as error:
            print(f"listening_sockets: {error}", file=sys.stderr)
            return 1
        rows = [row for row in sockets(table, protocol) if port in (None, row["port"])]
        print(f"{name}: {len(rows)} listening", file=sys.stderr)
        result += rows
    json.dump({"count": len(result), "sockets": result}, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
