#!/usr/bin/env python3
"""Finds the largest directories: args as JSON on stdin, one JSON object on stdout, progress on stderr."""

import heapq
import json
import os
import stat
import sys
import time

MEMBERS = {"path", "depth", "count", "max_seconds"}
PROGRESS_SECONDS = 1
# How many entries between two looks at the clock.
ENTRIES_PER_LOOK = 256


def number(args, name, default, low, high, whole=True):
    """A number among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if type(value) not in (int, float) or not low <= value <= high or (whole and value != value // 1):
        raise ValueError(f"{name} is not {'an integer' if whole else 'a number'} from {low} to {high}")
    return int(value) if whole else value


def read_args(data):
    """Path, depth, count and seconds; raises ValueError with what is wrong."""
    args = json.loads(data) if data.strip() else {}
    if not isinstance(args, dict):
        raise ValueError("not a JSON object")
    if unknown := args.keys() - MEMBERS:
        raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
    path = args.get("path", "/")
    if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
        raise ValueError("path is not an absolute path")
    path.encode()  # half a surrogate pair is a ValueError
    return (
        path,
        number(args, "depth", 3, 1, 16),
        number(args, "count", 20, 1, 200),
        number(args, "max_seconds", 30, 0.1, 100, whole=False),
    )


def text(path):
    """A path as JSON can hold it: bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


class Directory:
    """One that is being walked: what is known about it so far, and which directories in it are still to do."""

    def __init__(self, path, depth, descriptor, own_bytes):
        self.path, self.depth, self.descriptor = path, depth, descriptor
        self.own_bytes = self.bytes = own_bytes
        self.files = 0
        self.complete = True
        self.pending = []

    def report(self):
        return {
            "path": text(self.path),
            "bytes": self.bytes,
            "own_bytes": self.own_bytes,
            "files": self.files,
            "complete": self.complete,
        }


class Walk:
    """Walks by directory descriptors, so that a directory that is swapped for a link leads nowhere else."""

    def __init__(self, depth, count, max_seconds):
        self.depth, self.count = depth, count
        self.start = time.monotonic()
        self.deadline = self.start + max_seconds
        self.next_line = self.start + PROGRESS_SECONDS
        self.entries = self.directories = self.unreadable = self.other_file_systems = 0
        self.hard_links = set()
        self.largest = []
        self.late = False

    def look(self, path):
        """Looks at the clock: a line of progress when one is due, and whether time is up."""
        now = time.monotonic()
        self.late = self.late or now >= self.deadline
        if now >= self.next_line:
            self.next_line = now + PROGRESS_SECONDS
            took = round(now - self.start)
            print(f"{took} s: {self.entries} entries, at {ascii(text(path))[1:-1]}", file=sys.stderr, flush=True)

    def open(self, name, parent=None):
        """A directory, opened, or None when it cannot be or lies on another file system."""
        # The path that was asked for may be a link, what is found below it may not.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (os.O_NOFOLLOW if parent else 0)
        try:
            descriptor = os.open(name, flags, dir_fd=parent.descriptor if parent else None)
        except OSError:
            if not parent:
                raise
            parent.complete = False
            self.unreadable += 1
            return None
        status = os.fstat(descriptor)
        if not parent:
            self.device = status.st_dev
        elif status.st_dev != self.device:
            os.close(descriptor)
            self.other_file_systems += 1
            return None
        path = os.path.join(parent.path, name) if parent else name
        return Directory(path, parent.depth + 1 if parent else 0, descriptor, status.st_blocks * 512)

    def add(self, directory, entry):
        """Counts one entry."""
        self.entries += 1
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            if status.st_dev == self.device:
                directory.pending.append(entry.name)
            else:
                self.other_file_systems += 1
            return
        directory.files += 1
        if status.st_nlink > 1:
            if status.st_ino in self.hard_links:
                return
            self.hard_links.add(status.st_ino)
        directory.own_bytes += status.st_blocks * 512
        directory.bytes += status.st_blocks * 512

    def fill(self, directory):
        """Reads what is directly in it."""
        self.directories += 1
        try:
            with os.scandir(directory.descriptor) as entries:
                for entry in entries:
                    if self.entries % ENTRIES_PER_LOOK == 0:
                        self.look(directory.path)
                    if self.late:
                        return
                    self.add(directory, entry)
        except OSError:
            directory.complete = False
            self.unreadable += 1

    def close(self, directory, parent):
        """Adds it to the directory above, and to the largest when it is one of them."""
        os.close(directory.descriptor)
        directory.complete = directory.complete and not self.late
        if parent:
            parent.bytes += directory.bytes
            parent.files += directory.files
            parent.complete = parent.complete and directory.complete
        if 1 <= directory.depth <= self.depth:
            item = (directory.bytes, self.directories, directory.path, directory.report())
            if len(self.largest) < self.count:
                heapq.heappush(self.largest, item)
            else:
                heapq.heappushpop(self.largest, item)

    def run(self, path):
        """The directory that was asked for, walked."""
        root = self.open(path)
        stack = [root]
        self.fill(root)
        while stack:
            top = stack[-1]
            self.look(top.path)
            if self.late or not top.pending:
                stack.pop()
                self.close(top, stack[-1] if stack else None)
            elif child := self.open(top.pending.pop(), top):
                stack.append(child)
                self.fill(child)
        return root


def main():
    try:
        path, depth, count, max_seconds = read_args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"largest_directories: cannot read args: {error}", file=sys.stderr)
        return 2
    walk = Walk(depth, count, max_seconds)
    try:
        root = walk.run(path)
    except OSError as error:
        print(f"largest_directories: {ascii(path)[1:-1]}: {error.strerror}", file=sys.stderr)
        return 1
    outcome = "time is up" if walk.late else "done"
    print(f"{outcome}: {walk.entries} entries in {walk.directories} directories", file=sys.stderr)
    result = {
        "path": path,
        "complete": not walk.late,
        "bytes": root.bytes,
        "own_bytes": root.own_bytes,
        "files": root.files,
        "directories": walk.directories,
        "unreadable": walk.unreadable,
        "other_file_systems": walk.other_file_systems,
        "seconds": round(time.monotonic() - walk.start, 2),
        "largest": [item[-1] for item in sorted(walk.largest, key=lambda item: (-item[0], item[2]))],
    }
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
