#!/usr/bin/env python3
"""stdin: the args, one JSON object. stdout: the result, one JSON object. stderr: what people see meanwhile.

Any exit code but 0 means that it failed.
"""
import json
import sys

args = json.load(sys.stdin)
print("{{name}}: asked with", args, file=sys.stderr, flush=True)
json.dump({"greeting": "hello from weft", "asked": args}, sys.stdout)
