import json
import pathlib
import shutil
import tempfile
import unittest

from tests.harness import run


class DiskUsage(unittest.TestCase):
    def test_default_args_describe_the_root(self):
        for args in ({}, b"", b" \n"):
            code, result, stderr = run("disk_usage", args)
            self.assertEqual((code, stderr), (0, ""))
            self.assertEqual((result["path"], result["mount"]), ("/", "/"))
            self.assertNotIn("inodes", result)
            usage = shutil.disk_usage("/")
            self.assertAlmostEqual(result["size_bytes"], usage.total, delta=1024)
            self.assertGreaterEqual(result["size_bytes"], result["used_bytes"])
            self.assertIn(result["used_percent"], range(101))

    def test_inodes_are_counted_when_asked_for(self):
        _, result, _ = run("disk_usage", {"inodes": True, "path": "/"})
        self.assertEqual(set(result["inodes"]), {"size", "used", "available", "used_percent"})
        self.assertNotIn("inodes", run("disk_usage", {"inodes": False})[1])

    def test_any_path_comes_back_as_it_was(self):
        names = [
            "plain", "two  blanks ", 'quo"te', "'", "back\\slash", "\\u0041", "per%cent %s", "$(id) `id` $HOME *",
            "-rf", "new\nline",
            "ends in newlines\n\n", "tab\tbell\a\x7f", "ünï", "日本", "😀", "\\0101", "\\c", "&amp;",
        ]
        with tempfile.TemporaryDirectory() as root:
            for name in names:
                path = pathlib.Path(root, name)
                path.mkdir()
                for escaped in (True, False):
                    with self.subTest(name, escaped=escaped):
                        args = json.dumps({"path": str(path)}, ensure_ascii=escaped).encode()
                        code, result, stderr = run("disk_usage", args)
                        self.assertEqual((code, stderr), (0, ""))
                        self.assertEqual(result["path"], str(path))

    def test_escapes_in_names_and_values_are_read(self):
        code, result, _ = run("disk_usage", rb' { "\u0070ath" : "\u002F\/" , "inodes":false } ')
        self.assertEqual((code, result["path"]), (0, "//"))

    def test_a_path_that_is_not_there_fails_and_df_says_why(self):
        code, _, stderr = run("disk_usage", {"path": "/no/such/path"})
        self.assertEqual(code, 1)
        self.assertIn("/no/such/path", stderr)

    def test_bad_args_are_refused(self):
        bad = [
            {"path": 1}, {"path": None}, {"path": ""}, {"path": "relative"}, {"path": "/\0"}, {"path": ["/"]},
            {"inodes": "yes"}, {"inodes": 1}, {"path": "/" + "x" * 70000}, {"path": "/\ud800"},
            {"path": "/\udc00\ud800"}, b'{"path":"/","path":"/"}', b'{"path":"/",}', b'{"path":"/"', b'{"path":"/}',
            b'{"path":"/\\q"}',
            b'{"path":"/\\u12"}', b'{"path":"/a\nb"}', b'{path:"/"}', b'{"path" "/"}', b'{"inodes":trueish}', b"null",
        ]
        for args in bad:
            with self.subTest(str(args)[:40]):
                code, _, stderr = run("disk_usage", args)
                self.assertEqual(code, 2)
                self.assertRegex(stderr, r"\Adisk_usage: cannot read args: [^\n]+\n\Z")
