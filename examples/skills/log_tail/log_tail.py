#!/usr/bin/env python3
"""Reads the end of a log file: args as JSON on stdin, one JSON object on stdout, what it does on stderr."""

import json
import os
import re
import signal
import stat
import sys

MEMBERS = {"path", "lines", "contains", "regex", "max_bytes"}
BLOCK = 64 * 1024
# What is returned at most: of one line, and in all. Escaped, a character may take six bytes.
LINE_LIMIT = 8 * 1024
TEXT_LIMIT = 1024 * 1024
# A regular expression can take longer than the universe lasts.
SECONDS = 10


class Failure(Exception):
    """Why there is no result, in words for the log."""


def number(args, name, default, low, high):
    """An integer among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if type(value) not in (int, float) or not low <= value <= high or value != value // 1:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
    return int(value)


def string(args, name):
    """A string among the args, or None when it is left out."""
    value = args.get(name)
    if name in args and (not isinstance(value, str) or not 1 <= len(value) <= 1024):
        raise ValueError(f"{name} is not a string of 1 to 1024 characters")
    return value


class Args:
    """What to read; raises ValueError with what is wrong with the args."""

    def __init__(self, data):
        args = json.loads(data) if data.strip() else {}
        if not isinstance(args, dict):
            raise ValueError("not a JSON object")
        if unknown := args.keys() - MEMBERS:
            raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
        self.path = args.get("path")
        if not isinstance(self.path, str) or not self.path.startswith("/") or "\0" in self.path:
            raise ValueError("path is not an absolute path")
        self.path.encode()  # half a surrogate pair is a ValueError
        self.lines = number(args, "lines", 100, 1, 5000)
        self.max_bytes = number(args, "max_bytes", 1024 * 1024, 1024, 64 * 1024 * 1024)
        contains, regex = string(args, "contains"), string(args, "regex")
        if contains and regex:
            raise ValueError("contains and regex exclude each other")
        self.wanted = None
        if contains:
            self.wanted = lambda line: contains in line
        elif regex:
            try:
                self.wanted = re.compile(regex).search
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"regex: {ascii(str(error))[1:-1]}") from None


def allowed(descriptor):
    """Whether an open file lies below the directories that the operator names, or none are named."""
    if not (roots := os.environ.get("LOG_TAIL_ROOTS")):
        return True
    # The kernel's word on where the open file is: no link can be swapped after this.
    real = os.readlink(f"/proc/self/fd/{descriptor}")
    return any(real.startswith(os.path.realpath(root).rstrip("/") + "/") for root in roots.split(":") if root)


def require_regular(status):
    """Refuses everything but a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise Failure("is a directory")
    if not stat.S_ISREG(status.st_mode):
        raise Failure("is not a regular file")


def open_log(path):
    """The descriptor of a regular file and its size."""
    # Before it is opened: opening a device may do things. And after: the name may mean something else by then.
    require_regular(os.stat(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    require_regular(status)
    if not allowed(descriptor):
        raise Failure("is not below the directories of LOG_TAIL_ROOTS")
    return descriptor, status.st_size


class Tail:
    """The end of a file, read block by block from the back."""

    def __init__(self, descriptor, size, max_bytes):
        self.descriptor = descriptor
        self.start = self.size = size
        self.floor = max(0, size - max_bytes)
        # The earliest line that was seen, its last piece first; what comes before it in the file is not read yet.
        self.pieces = []

    def block(self, start):
        """What lies from there to where reading began so far."""
        length = self.start - start
        block = os.pread(self.descriptor, length, start)
        if len(block) != length:
            raise Failure("became shorter while it was read")
        self.start = start
        return block

    def line(self):
        """The pieces as one line."""
        line = b"".join(reversed(self.pieces)).removesuffix(b"\r")
        self.pieces = []
        return line

    def lines(self):
        """Complete lines, the last one first."""
        while self.start > self.floor:
            at_end = self.start == self.size
            block = self.block(max(self.floor, self.start - BLOCK))
            if at_end:
                # What follows the last newline is a line too, unless it is nothing.
                block = block.removesuffix(b"\n")
            *before, last = block.split(b"\n")
            self.pieces.append(last)
            while before:
                yield self.line()
                self.pieces.append(before.pop())
        if self.pieces and (self.start == 0 or os.pread(self.descriptor, 1, self.start - 1) == b"\n"):
            yield self.line()


def read(args, tail):
    """Reads backwards until enough is found, and makes the result."""
    found, size, cut, invalid, whole = [], 0, 0, False, False
    for line in tail.lines():
        decoded = line.decode(errors="replace")
        if args.wanted and not args.wanted(decoded):
            continue
        if size + min(len(decoded), LINE_LIMIT) > TEXT_LIMIT:
            break
        found.append(decoded[:LINE_LIMIT])
        size += len(found[-1])
        cut += len(decoded) > LINE_LIMIT
        invalid = invalid or decoded.encode() != line
        if len(found) == args.lines:
            whole = True
            break
    else:
        whole = not tail.pieces
        if tail.pieces and not found and not args.wanted:
            # One line longer than all that may be read: its end says more than nothing.
            line = tail.line()[-LINE_LIMIT:]
            found.append(line.decode(errors="replace"))
            cut += 1
            invalid = found[-1].encode() != line
    return {
        "path": args.path,
        "size_bytes": tail.size,
        "read_bytes": tail.size - tail.start,
        "complete": whole,
        "invalid_utf8": invalid,
        "lines_cut": cut,
        "count": len(found),
        "lines": found[::-1],
    }


def give_up(*_):
    raise Failure(f"takes longer than {SECONDS} s to search; use a simpler regex, or contains, or fewer max_bytes")


def main():
    try:
        args = Args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"log_tail: cannot read args: {error}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        descriptor, size = open_log(args.path)
        result = read(args, Tail(descriptor, size, args.max_bytes))
    except (OSError, Failure) as error:
        why = error.strerror if isinstance(error, OSError) else error
        print(f"log_tail: {ascii(args.path)[1:-1]}: {why}", file=sys.stderr)
        return 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"{result['count']} lines, {result['read_bytes']} of {size} bytes read", file=sys.stderr)
    if result["invalid_utf8"]:
        print("some bytes are not UTF-8 and came back as U+FFFD", file=sys.stderr)
    if not result["complete"]:
        print("stopped at a limit: there may be more lines before these", file=sys.stderr)
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
