"""Runs a skill as a node does: no environment but `env_allow`, args on stdin, one JSON object on stdout."""

import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

SOURCE = pathlib.Path(__file__).resolve().parent.parent
# The skills find the Python that runs the tests, and not a shim in front of it, which takes longer to start than they.
PATH = f"{pathlib.Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"
SKILLS = {path.parent.name: json.loads(path.read_text()) for path in sorted(SOURCE.glob("*/skill.json"))}


def run(name, args, home=None, **extra):
    """Exit code, result (None when it failed) and stderr of one invocation. `home` is a copy of the skill to run."""
    manifest, home = SKILLS[name], home or SOURCE / name
    env = {key: value for key, value in (os.environ | {"PATH": PATH} | extra).items() if key in manifest["env_allow"]}
    stdin = args if isinstance(args, bytes) else json.dumps(args).encode()
    child = subprocess.run(
        [home / manifest["entry"]], cwd=home, env=env, input=stdin, capture_output=True, timeout=30
    )
    stderr = child.stderr.decode()
    if child.returncode:
        assert not child.stdout, child.stdout
        return child.returncode, None, stderr
    result = json.loads(child.stdout.decode())
    assert isinstance(result, dict), result
    fits(result, manifest.get("output_schema", {}))
    return 0, result, stderr


def fits(value, schema, root=None):
    """Checks a value against what the output schemas here say: types, members and references."""
    root = root or schema
    if reference := schema.get("$ref"):
        schema = root["$defs"][reference.rpartition("/")[2]]
    types = schema.get("type", [])
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
             "null": type(None)}
    allowed = [types] if isinstance(types, str) else types
    assert not allowed or any(isinstance(value, kinds[kind]) for kind in allowed), (value, types)
    if isinstance(value, dict):
        properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        assert not set(schema.get("required", [])) - value.keys(), (value, schema)
        assert more is not False or not value.keys() - properties.keys(), (value, schema)
        for name, member in value.items():
            fits(member, properties.get(name, more if isinstance(more, dict) else {}), root)
    for item in value if isinstance(value, list) else []:
        fits(item, schema.get("items", {}), root)


def load(name, home=None):
    """The program of a skill as a module, to look at its parts."""
    spec = importlib.util.spec_from_file_location(name, (home or SOURCE / name) / SKILLS[name]["entry"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def inside(module, args):
    """Exit code, stdout and stderr of a skill in Python that runs in this process."""
    stdin = args if isinstance(args, bytes) else json.dumps(args).encode()
    streams = {"stdin": io.TextIOWrapper(io.BytesIO(stdin)), "stdout": io.StringIO(), "stderr": io.StringIO()}
    with unittest.mock.patch.multiple(sys, **streams):
        code = module.main()
    return code, streams["stdout"].getvalue(), streams["stderr"].getvalue()


class Case(unittest.TestCase):
    def enterContext(self, manager):  # unittest has it from Python 3.11
        value = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return value

    def directory(self):
        """An empty directory that is gone after the test."""
        return pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()

    def succeeds(self, name, args, **options):
        """Result and stderr of an invocation that must succeed."""
        code, result, stderr = run(name, args, **options)
        self.assertEqual(code, 0, stderr)
        return result, stderr

    def fails(self, name, args, words, **options):
        """Checks that an invocation fails with one line that says why."""
        code, _, stderr = run(name, args, **options)
        self.assertEqual(code, 1, stderr)
        self.assertRegex(stderr, rf"\A{name}: [^\n]*{words}[^\n]*\n\Z")

    def refuses(self, name, *bad, home=None):
        """Checks that each of these args is refused with one line. In this process: a start for each takes long."""
        module = load(name, home)
        for args in bad:
            with self.subTest(str(args)[:80]):
                code, stdout, stderr = inside(module, args)
                self.assertEqual((code, stdout), (2, ""), stderr)
                self.assertRegex(stderr, rf"\A{name}: cannot read args: [^\n]+\n\Z")
