#!/usr/bin/env python3
"""Restarts a systemd service: args as JSON on stdin, one JSON object on stdout, steps and journal on stderr."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time

MEMBERS = {"unit", "wait_seconds", "settle_seconds", "journal_lines"}
# A service by its full name: no path, no pattern, no option, no template without an instance.
NAME = r"(?:[A-Za-z0-9:_.-]|\\x[0-9a-f]{2})"
UNIT = re.compile(rf"[A-Za-z0-9_]{NAME}*(?:@{NAME}+)?\.service")
PROPERTIES = {
    "ActiveState": "active_state",
    "SubState": "sub_state",
    "Result": "result",
    "MainPID": "main_pid",
    "InvocationID": "invocation_id",
}
POLL_SECONDS = 0.2
# How long one call of systemctl or journalctl may take.
TOOL_SECONDS = 15


class Failure(Exception):
    """Why there is no result, in words for the log."""


def number(args, name, default, low, high, whole=True):
    """A number among the args; raises ValueError when it is something else or out of bounds."""
    value = args.get(name, default)
    if type(value) not in (int, float) or not low <= value <= high or (whole and value != value // 1):
        raise ValueError(f"{name} is not {'an integer' if whole else 'a number'} from {low} to {high}")
    return int(value) if whole else value


def once(pairs):
    """An object from its members; one that comes twice could be read one way here and another way elsewhere."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member comes twice")
    return members


class Args:
    """What to do; raises ValueError with what is wrong with the args."""

    def __init__(self, data):
        args = json.loads(data, object_pairs_hook=once) if data.strip() else {}
        if not isinstance(args, dict):
            raise ValueError("not a JSON object")
        if unknown := args.keys() - MEMBERS:
            raise ValueError(f"unknown members: {', '.join(sorted(map(ascii, unknown)))}")
        self.unit = args.get("unit")
        if not isinstance(self.unit, str) or len(self.unit) > 255 or not UNIT.fullmatch(self.unit):
            raise ValueError("unit is not the full name of a service, such as nginx.service")
        self.wait = number(args, "wait_seconds", 60, 1, 300, whole=False)
        self.settle = number(args, "settle_seconds", 2, 0, 30, whole=False)
        self.journal = number(args, "journal_lines", 10, 0, 200)


def say(line):
    """A line of the log; what systemd or a service wrote cannot forge another."""
    print("".join(c if c.isprintable() else ascii(c)[1:-1] for c in line), file=sys.stderr, flush=True)


def call(*command):
    """Runs a tool; raises Failure with what it says when that fails."""
    environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"}
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TOOL_SECONDS, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failure(f"{command[0]} does not answer within {TOOL_SECONDS} s") from None
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        said = "; ".join(done.stderr.decode(errors="replace").split("\n")).strip("; ")
        raise Failure(f"{command[0]} exits with {done.returncode}: {said or 'it says nothing'}")
    return done.stdout.decode(errors="replace")


def systemctl(verb, unit, *options):
    return call("systemctl", "--system", "--no-pager", "--no-ask-password", *options, verb, "--", unit)


def properties(unit):
    """What systemd knows about a unit."""
    names = ",".join([*PROPERTIES, "LoadState", "LoadError", "Type", "Job"])
    lines = systemctl("show", unit, f"--property={names}").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def state(known):
    """The part of the properties that is returned."""
    shown = {name: known.get(key, "") for key, name in PROPERTIES.items()}
    shown["main_pid"] = int(shown["main_pid"]) if shown["main_pid"].isdigit() else 0
    return shown


def words(known):
    """A state as people say it."""
    return f"{known.get('ActiveState', '?')} ({known.get('SubState', '?')}), result {known.get('Result', '?')}"


def runs_in(unit):
    """Whether this very process belongs to the unit, and would be ended by what it asks for."""
    try:
        groups = pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(unit in line.split("/") for line in groups.splitlines())


def wait(args):
    """What systemd knows once the service is up for good, has failed or has ended, or time is up."""
    deadline = time.monotonic() + args.wait
    seen = known = None
    while True:
        now = time.monotonic()
        try:
            known = properties(args.unit)
        except Failure as failure:
            # The bus itself may be what restarts.
            if now >= deadline:
                raise
            say(str(failure))
        else:
            current = (known.get("ActiveState"), known.get("SubState"), known.get("InvocationID"))
            if current != seen:
                say(f"now: {words(known)}")
                seen, steady_since = current, now
            if known.get("Job", "0") in ("", "0"):
                if current[0] in ("failed", "inactive"):
                    return known
                if current[0] == "active" and now - steady_since >= args.settle:
                    return known
            if now >= deadline + (args.settle if current[0] == "active" else 0):
                say(f"not settled after {args.wait} s; systemd goes on without being watched")
                return known
        time.sleep(POLL_SECONDS)


def journal(unit, lines):
    """Writes the last lines of the unit's journal to the log."""
    try:
        text = call("journalctl", "--quiet", "--no-pager", "--output=short-iso", f"--lines={lines}", f"--unit={unit}")
    except Failure as failure:
        say(f"no journal: {failure}")
        return
    for line in text.splitlines():
        say(f"journal: {line[:2000]}")


def restart(args):
    """Restarts the unit and makes the result."""
    before = properties(args.unit)
    loaded = before.get("LoadState", "unknown")
    if loaded != "loaded":
        raise Failure(f"the unit is {loaded}; nothing was done")
    if runs_in(args.unit):
        raise Failure("this skill runs in that unit and would end itself; nothing was done")
    say(f"before: {words(before)}")
    start = time.monotonic()
    systemctl("restart", args.unit, "--no-block")
    say("restart is asked for")
    try:
        after = wait(args)
    except Failure as failure:
        raise Failure(f"restart was asked for, but the state is not known: {failure}") from None
    finally:
        if args.journal:
            journal(args.unit, args.journal)
    settled = after.get("Job", "0") in ("", "0")
    up = after.get("ActiveState") == "active"
    ending = (after.get("Type"), after.get("ActiveState"), after.get("Result"))
    ended_well = ending == ("oneshot", "inactive", "success")
    restarted = bool(after.get("InvocationID")) and after.get("InvocationID") != before.get("InvocationID")
    return {
        "ok": settled and restarted and (up or ended_well),
        "unit": args.unit,
        "restarted": restarted,
        "seconds": round(time.monotonic() - start, 1),
        "before": state(before),
        "after": state(after),
    }


def main():
    try:
        args = Args(sys.stdin.buffer.read())
    except (ValueError, RecursionError) as error:
        print(f"service_restart: cannot read args: {error}", file=sys.stderr)
        return 2
    try:
        result = restart(args)
    except Failure as failure:
        say(f"service_restart: {args.unit}: {failure}")
        return 1
    json.dump(result, sys.stdout)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
