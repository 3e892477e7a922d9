#!/usr/bin/env python3
"""Deletes old files below a cache directory: args as JSON on stdin, one JSON object on stdout, steps on stderr.

Nothing is opened or deleted by its path. From the root of the file system down, each directory is opened in the one
before, never through a symbolic link, and a file is deleted in the directory that is open. Whoever swaps a name for a
link, or for another directory, at whatever moment, does not lead a deletion elsewhere.
"""

import json
import os
import pathlib
import stat
import sys
import time

MEMBERS = {"path", "older_than_days", "dry_run", "max_files"}
ROOTS = pathlib.Path(__file__).with_name("roots.txt")
SECONDS_PER_DAY = 86400
# Less than the manifest's time-out, so that there is a result.
MAX_SECONDS = 240
# Each level keeps a descriptor open.
MAX_DEPTH = 128
MAX_FAILURES_SAID = 20


class Failure(Exception):
    """Why there is no result, in words for the log."""


def number(args, name, default, low, high):
    """An integer among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if type(value) not in (int, float) or not low <= value <= high or value != value // 1:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
    return int(value)


def once(pairs):
    """An object from its members; one that comes twice could be read one way here and another way elsewhere."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


def is_plain(path):
    """Whether a path is absolute, below /, and has one spelling only."""
    return path.startswith("/") and "\0" not in path and not {"", ".", ".."} & set(path.split("/")[1:])


class Args:
    """What to delete; raises ValueError with what is wrong with the args."""

    def __init__(self, data):
        args = json.loads(data, object_pairs_hook=once) if data.strip() else {}
        if not isinstance(args, dict):
            raise ValueError("not a JSON object")
        if unknown := args.keys() - MEMBERS:
            raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
        self.path, self.dry_run = args.get("path"), args.get("dry_run", True)
        if not isinstance(self.path, str) or not is_plain(self.path):
            raise ValueError("path is not an absolute path without dot segments, double slashes and a slash at the end")
        self.path.encode()  # half a surrogate pair is a ValueError
        if type(self.dry_run) is not bool:
            raise ValueError("dry_run is not true or false")
        self.days = number(args, "older_than_days", 30, 1, 3650)
        self.max_files = number(args, "max_files", 100_000, 1, 1_000_000)


def say(line):
    """A line of the log; a file's name cannot forge another."""
    shown = os.fsencode(line).decode(errors="backslashreplace")
    print("".join(c if c.isprintable() else ascii(c)[1:-1] for c in shown), file=sys.stderr, flush=True)


def is_allowed(path):
    """Whether the operator lists the path or one above it."""
    try:
        lines = ROOTS.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read roots.txt: {error}") from None
    roots = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if wrong := [root for root in roots if not is_plain(root)]:
        raise Failure(f"roots.txt: not a plain absolute path: {wrong[0]}")
    return any(path == root or path.startswith(root + "/") for root in roots)


def open_directory(name, parent):
    """A directory in the one that is open, unless it is a symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)


def open_path(path):
    """The directory at a path that has no symbolic link in it."""
    descriptor = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in path.split("/")[1:]:
        parent = descriptor
        try:
            descriptor = open_directory(name, parent)
        except OSError as error:
            raise Failure(f"{name}: {error.strerror}; no directory, or a symbolic link on the way") from None
        finally:
            os.close(parent)
    return descriptor


def mount(descriptor):
    """Which mount a directory lies on. The device alone does not tell: a bind mount may show the same one."""
    for line in pathlib.Path(f"/proc/self/fdinfo/{descriptor}").read_text(encoding="ascii").splitlines():
        if line.startswith("mnt_id:"):
            return os.fstat(descriptor).st_dev, line.split()[1]
    raise Failure("the kernel does not say which mount a directory lies on")


class Directory:
    """One that is open and has been gone through, with the directories in it that are still to do."""

    def __init__(self, path, descriptor):
        self.path, self.descriptor = path, descriptor
        self.pending = []


class Clean:
    """Goes through directories and counts."""

    def __init__(self, args):
        self.args = args
        now = time.time()
        self.newest = now - args.days * SECONDS_PER_DAY
        self.deadline = time.monotonic() + MAX_SECONDS
        self.complete = True
        self.matched = {"files": 0, "bytes": 0}
        self.deleted = {"files": 0, "bytes": 0}
        self.kept = {"recent": 0, "links": 0, "special": 0}
        self.skipped = {"other_file_system": 0, "unreadable": 0, "too_deep": 0}
        self.directories = self.failed = 0

    def is_over(self):
        """Whether a limit is reached."""
        if self.matched["files"] >= self.args.max_files or time.monotonic() >= self.deadline:
            self.complete = False
        return not self.complete

    def enter(self, path, descriptor):
        """Goes through what is directly in a directory."""
        directory = Directory(path, descriptor)
        self.directories += 1
        matched, deleted = dict(self.matched), dict(self.deleted)
        try:
            names = os.listdir(descriptor)
        except OSError as error:
            say(f"{path}: {error.strerror}")
            self.skipped["unreadable"] += 1
            return directory
        for name in names:
            if self.is_over():
                break
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue  # it is gone
            if stat.S_ISDIR(status.st_mode):
                directory.pending.append(name)
            elif stat.S_ISLNK(status.st_mode):
                self.kept["links"] += 1
            elif not stat.S_ISREG(status.st_mode):
                self.kept["special"] += 1
            elif max(status.st_mtime, status.st_atime) > self.newest:
                self.kept["recent"] += 1
            else:
                self.delete(directory, name, status)
        files, size = (self.matched[key] - matched[key] for key in ("files", "bytes"))
        gone = self.deleted["files"] - deleted["files"]
        outcome = "dry run" if self.args.dry_run else f"{gone} deleted"
        say(f"{path}: {files} of {len(names)} entries are old, {size} bytes: {outcome}")
        return directory

    def delete(self, directory, name, status):
        """Deletes a file in the directory that is open, or counts it."""
        freed = status.st_blocks * 512 if status.st_nlink == 1 else 0
        self.matched["files"] += 1
        self.matched["bytes"] += freed
        if self.args.dry_run:
            return
        try:
            os.unlink(name, dir_fd=directory.descriptor)
        except FileNotFoundError:
            return  # somebody else was faster
        except OSError as error:
            self.failed += 1
            if self.failed <= MAX_FAILURES_SAID:
                say(f"{directory.path}/{name}: not deleted: {error.strerror}")
            return
        self.deleted["files"] += 1
        self.deleted["bytes"] += freed

    def descend(self, parent, name):
        """The next directory to go through, or None when it is to be left alone."""
        path = f"{parent.path}/{name}"
        try:
            descriptor = open_directory(name, parent.descriptor)
        except OSError as error:
            say(f"{path}: left alone: {error.strerror}")
            self.skipped["unreadable"] += 1
            return None
        if mount(descriptor) != self.mount:
            os.close(descriptor)
            say(f"{path}: left alone: another file system")
            self.skipped["other_file_system"] += 1
            return None
        return self.enter(path, descriptor)

    def run(self):
        """Goes through everything below the path, and makes the result."""
        descriptor = open_path(self.args.path)
        self.mount = mount(descriptor)
        stack = [self.enter(self.args.path, descriptor)]
        while stack:
            top = stack[-1]
            if not top.pending or self.is_over():
                os.close(stack.pop().descriptor)
            elif len(stack) >= MAX_DEPTH:
                self.skipped["too_deep"] += len(top.pending)
                top.pending = []
            elif child := self.descend(top, top.pending.pop()):
                stack.append(child)
        return {
            "path": self.args.path,
            "dry_run": self.args.dry_run,
            "older_than_days": self.args.days,
            "complete": self.complete,
            "matched": self.matched,
            "deleted": self.deleted,
            "failed": self.failed,
            "kept": self.kept,
            "directories": self.directories,
            "skipped_directories": self.skipped,
        }


def main():
    try:
        args = Args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"cache_clean: cannot read args: {error}", file=sys.stderr)
        return 2
    try:
        if not is_allowed(args.path):
            raise Failure("not a cache directory of roots.txt, nor below one; nothing was deleted")
        result = Clean(args).run()
    except (OSError, Failure) as error:
        say(f"cache_clean: {args.path}: {error}")
        return 1
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
