#!/usr/bin/env python3
"""Lists the busiest processes: args as JSON on stdin, one JSON object on stdout, progress on stderr."""

import json
import os
import pathlib
import sys
import time

MEMBERS = {"sort", "count", "interval_seconds", "args"}
PROC = pathlib.Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# So much of a command line is returned.
COMMAND_LINE_LIMIT = 4096


def number(args, name, default, low, high, whole=True):
    """A number among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if type(value) not in (int, float) or not low <= value <= high or (whole and value != value // 1):
        raise ValueError(f"{name} is not {'an integer' if whole else 'a number'} from {low} to {high}")
    return int(value) if whole else value


def read_args(data):
    """Order, count, interval and whether command lines are wanted; raises ValueError with what is wrong."""
    args = json.loads(data) if data.strip() else {}
    if not isinstance(args, dict):
        raise ValueError("not a JSON object")
    if unknown := args.keys() - MEMBERS:
        raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
    sort, command_lines = args.get("sort", "cpu"), args.get("args", False)
    if sort not in ("cpu", "rss"):
        raise ValueError("sort is not cpu or rss")
    if type(command_lines) is not bool:
        raise ValueError("args is not true or false")
    count = number(args, "count", 10, 1, 100)
    return sort, count, number(args, "interval_seconds", 0.5, 0.1, 5, whole=False), command_lines


def process(directory):
    """What the kernel says about one process."""
    now = time.monotonic()
    line = (directory / "stat").read_bytes()
    # The name stands in parentheses and may hold any byte, parentheses too.
    head, _, tail = line.rpartition(b")")
    pid, _, name = head.partition(b" (")
    # fields[0] is the third field in proc(5).
    fields = tail.split()
    return {
        "pid": int(pid),
        "name": name.decode(errors="replace"),
        "uid": directory.stat().st_uid,
        "state": fields[0].decode(),
        "threads": int(fields[17]),
        "rss_bytes": max(0, int(fields[21])) * PAGE_BYTES,
        "ticks": int(fields[11]) + int(fields[12]),
        "started": int(fields[19]),
        "at": now,
    }


def processes():
    """All processes that can be seen, by pid and start: a pid alone may be used again."""
    found = {}
    for name in os.listdir(PROC):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            row = process(PROC / name)
        except (OSError, ValueError, IndexError):
            continue  # it ended, or it is not for us to see
        found[row["pid"], row["started"]] = row
    return found


def measured(row, before, start):
    """One process as it is returned. One that is new has used all its time since the start."""
    ticks, at = (before["ticks"], before["at"]) if before else (0, start)
    percent = 100 * (row["ticks"] - ticks) / TICKS_PER_SECOND / max(row["at"] - at, 0.001)
    shown = {name: row[name] for name in ("pid", "name", "uid", "state")}
    shown["cpu_percent"] = round(max(percent, 0), 1)
    return shown | {"rss_bytes": row["rss_bytes"], "threads": row["threads"]}


def command_line(row):
    """The arguments of a process, or None when it has none, has ended, or is not for us to see."""
    directory = PROC / str(row["pid"])
    try:
        with open(directory / "cmdline", "rb") as file:
            data = file.read(COMMAND_LINE_LIMIT)
        if process(directory)["started"] != row["started"]:
            return None
    except (OSError, ValueError, IndexError):
        return None
    return [part.decode(errors="replace") for part in data.removesuffix(b"\0").split(b"\0")] if data else None


def main():
    try:
        sort, count, interval, command_lines = read_args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"process_top: cannot read args: {error}", file=sys.stderr)
        return 2
    try:
        start = time.monotonic()
        before = processes()
        print(f"{len(before)} processes, measuring for {interval} s", file=sys.stderr, flush=True)
        time.sleep(interval)
        after = processes()
    except OSError as error:
        print(f"process_top: {error}", file=sys.stderr)
        return 1
    rows = [measured(row, before.get(key), start) | {"started": row["started"]} for key, row in after.items()]
    order = {"cpu": ("cpu_percent", "rss_bytes"), "rss": ("rss_bytes", "cpu_percent")}[sort]
    rows.sort(key=lambda row: (-row[order[0]], -row[order[1]], row["pid"]))
    rows = rows[:count]
    result = {"sort": sort, "interval_seconds": interval, "cpus": os.cpu_count() or 1, "seen": len(after)}
    lines = {str(row["pid"]): command_line(row) for row in rows} if command_lines else {}
    for row in rows:
        del row["started"]
    result["processes"] = rows
    if command_lines:
        result["command_lines"] = {pid: line for pid, line in lines.items() if line}
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
