import os

from tests.harness import SKILLS, SOURCE, Case, run

CLASSES = {
    "cache_clean": "dangerous",
    "disk_usage": "safe",
    "dns_tcp_probe": "safe",
    "http_probe": "safe",
    "largest_directories": "safe",
    "listening_sockets": "safe",
    "log_tail": "safe",
    "process_top": "safe",
    "service_restart": "mutating",
}
# What weft knows, so that no example loads with a warning.
MEMBERS = {
    "name", "description", "schema", "entry", "env_allow", "timeout_seconds", "class", "category", "metadata",
    "output_schema", "idempotent", "sensitive", "max_concurrency", "digest_ignore", "version",
}


class Manifests(Case):
    def test_every_manifest_keeps_the_contract(self):
        self.assertEqual({name: manifest["class"] for name, manifest in SKILLS.items()}, CLASSES)
        for name, manifest in SKILLS.items():
            with self.subTest(name):
                self.assertEqual(manifest["name"], name)
                self.assertLessEqual(manifest.keys(), MEMBERS)
                self.assertEqual((SOURCE / name / manifest["entry"]).stat().st_mode & 0o777, 0o755)
                self.assertTrue(os.access(SOURCE / name / manifest["entry"], os.X_OK))
                schema = manifest["schema"]
                self.assertIs(schema["additionalProperties"], False)
                for member in schema["properties"].values():
                    self.assertTrue(member["description"].endswith("."), member)

    def test_what_changes_something_says_how_often_it_may(self):
        for name in ("cache_clean", "service_restart"):
            self.assertIn("idempotent", SKILLS[name])
            self.assertEqual(SKILLS[name]["max_concurrency"], 1)
        self.assertFalse(SKILLS["service_restart"]["idempotent"])
        self.assertIs(SKILLS["cache_clean"]["schema"]["properties"]["dry_run"]["default"], True)

    def test_what_is_no_args_object_is_refused_with_one_line(self):
        bad = [b"[]", b"{", b"nonsense", b'{"no_such_member": 1}', b"\xff\xfe", b"[" * 60000, b"{} {}"]
        for name, manifest in SKILLS.items():
            if manifest["entry"].endswith(".py"):
                self.refuses(name, *bad)
            # One of them as a node starts it; a program in another language has them all that way.
            for args in bad[-1:] if manifest["entry"].endswith(".py") else bad:
                with self.subTest(name, args=args[:30]):
                    code, _, stderr = run(name, args)
                    self.assertEqual(code, 2, stderr)
                    self.assertRegex(stderr, rf"\A{name}: cannot read args: [^\n]+\n\Z")
