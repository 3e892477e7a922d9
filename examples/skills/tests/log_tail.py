import json
import os
import sys
import unittest

from tests.harness import Case, inside, load


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class LogTail(Case):
    def setUp(self):
        self.root = self.directory()

    def write(self, content, name="log"):
        path = self.root / name
        path.write_bytes(content)
        return str(path)

    def tail(self, content, **args):
        code, stdout, stderr = inside(load("log_tail"), {"path": self.write(content), **args})
        self.assertEqual(code, 0, stderr)
        return json.loads(stdout)

    def test_the_last_lines(self):
        result, stderr = self.succeeds("log_tail", {"path": self.write(b"one\ntwo\nthree\n"), "lines": 2})
        self.assertEqual(result["lines"], ["two", "three"])
        self.assertEqual((result["count"], result["complete"], result["invalid_utf8"]), (2, True, False))
        self.assertEqual((result["size_bytes"], result["read_bytes"], result["lines_cut"]), (14, 14, 0))
        self.assertEqual(stderr, "2 lines, 14 of 14 bytes read\n")

    def test_ends_and_empty_lines(self):
        for content, lines in (
            (b"", []), (b"\n", [""]), (b"a", ["a"]), (b"a\nb", ["a", "b"]), (b"\n\na\n\n", ["", "", "a", ""]),
            (b"a\r\nb\r\n", ["a", "b"]), (b"a\0b\x1b[0m\n", ["a\0b\x1b[0m"]),
        ):
            with self.subTest(content):
                result = self.tail(content)
                self.assertEqual((result["lines"], result["complete"]), (lines, True))

    def test_lines_over_the_edges_of_blocks(self):
        lines = [f"{number} " + "x" * (number * 37 % 5000) for number in range(200)]
        content = "\n".join(lines).encode()
        self.assertEqual(self.tail(content, lines=150)["lines"], lines[-150:])
        edge = b"a" * 65535 + b"\n" + b"b" * 65535 + b"\n"
        self.assertEqual([len(line) for line in self.tail(edge)["lines"]], [8192, 8192])

    def test_a_huge_file_is_read_from_its_end_only(self):
        path = self.write(b"")
        with open(path, "r+b") as file:
            file.truncate(1 << 40)  # sparse
            file.seek(0, os.SEEK_END)
            file.write(b"\nlast but one\nlast\n")
        result, _ = self.succeeds("log_tail", {"path": path, "lines": 2})
        self.assertEqual(result["lines"], ["last but one", "last"])
        self.assertLessEqual(result["read_bytes"], 65536)

    def test_the_limit_of_bytes_leaves_out_half_a_line(self):
        content = b"x" * 2000 + b"\n" + b"y" * 500 + b"\nlast\n"
        result = self.tail(content, max_bytes=1024)
        self.assertEqual((result["lines"], result["complete"]), (["y" * 500, "last"], False))
        self.assertEqual(result["read_bytes"], 1024)
        exact = self.tail(b"x" * 2000 + b"\n" + b"y" * 1023 + b"\n", max_bytes=1024)
        self.assertEqual(exact["lines"], ["y" * 1023])
        one_line = self.tail(b"x" * 5000, max_bytes=1024)
        self.assertEqual((one_line["lines"], one_line["lines_cut"], one_line["complete"]), (["x" * 1024], 1, False))
        self.assertEqual(self.tail(b"x" * 5000, max_bytes=1024, contains="x")["lines"], [])

    def test_the_result_has_a_limit_too(self):
        result = self.tail((b"\1" * 9000 + b"\n") * 300, lines=5000, max_bytes=64 * 1024 * 1024)
        self.assertEqual((result["count"], result["lines_cut"], result["complete"]), (128, 128, False))

    def test_filters(self):
        content = b"error: a\ninfo: b\nERROR: c\nerror (d)\n"
        self.assertEqual(self.tail(content, contains="error")["lines"], ["error: a", "error (d)"])
        self.assertEqual(self.tail(content, contains="error", lines=1)["lines"], ["error (d)"])
        self.assertEqual(self.tail(content, contains="r (")["lines"], ["error (d)"])
        self.assertEqual(self.tail(content, regex="(?i)^error:")["lines"], ["error: a", "ERROR: c"])
        none = self.tail(content, contains="$(id) `id` '\"")
        self.assertEqual((none["lines"], none["complete"]), ([], True))

    def test_bytes_that_are_not_text_are_replaced_and_it_says_so(self):
        result, stderr = self.succeeds("log_tail", {"path": self.write("ü\ufffd\n".encode() + b"a\xff\xc3\n")})
        self.assertEqual((result["lines"], result["invalid_utf8"]), (["ü\ufffd", "a\ufffd\ufffd"], True))
        self.assertIn("not UTF-8", stderr)
        self.assertFalse(self.tail("ü\ufffd\n".encode())["invalid_utf8"])

    def test_a_regex_without_end_is_given_up(self):
        module = load("log_tail")
        module.SECONDS = 0.2
        path = self.write(b"a" * 60 + b"b\n")
        code, stdout, stderr = inside(module, {"path": path, "regex": "^(a|a)*$"})
        self.assertEqual((code, stdout), (1, ""))
        self.assertIn("takes longer than 0.2 s", stderr)

    def test_only_regular_files(self):
        fifo = self.root / "fifo"
        os.mkfifo(fifo)
        self.fails("log_tail", {"path": str(fifo)}, "fifo: is not a regular file")
        self.fails("log_tail", {"path": "/dev/zero"}, "is not a regular file")
        self.fails("log_tail", {"path": str(self.root)}, "is a directory")
        self.fails("log_tail", {"path": "/no/such\nfile"}, r"/no/such\\nfile: No such file")
        self.fails("log_tail", {"path": self.write(b"") + "/"}, "Not a directory")
        (self.root / "loop").symlink_to("loop")
        self.fails("log_tail", {"path": str(self.root / "loop")}, "symbolic links")

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_a_file_that_may_not_be_read_fails(self):
        path = self.write(b"secret")
        os.chmod(path, 0)
        self.fails("log_tail", {"path": path}, "Permission denied")

    def test_the_operator_may_say_below_which_directories(self):
        inside, outside = self.root / "logs", self.root / "logs-of-others"
        inside.mkdir()
        outside.mkdir()
        (inside / "a").write_text("in\n")
        (outside / "b").write_text("out\n")
        (inside / "link").symlink_to(outside / "b")
        (outside / "link").symlink_to(inside / "a")
        roots = {"LOG_TAIL_ROOTS": f"/no/such:{inside}"}
        for path in (inside / "a", outside / "link"):
            self.assertEqual(self.succeeds("log_tail", {"path": str(path)}, **roots)[0]["lines"], ["in"])
        for path in (inside / "link", outside / "b", inside / ".." / "logs-of-others" / "b"):
            self.fails("log_tail", {"path": str(path)}, "LOG_TAIL_ROOTS", **roots)

    def test_bad_args_are_refused(self):
        self.refuses(
            "log_tail",
            {}, {"path": 1}, {"path": "log"}, {"path": "/\0"}, {"path": "/\ud800"}, {"path": "/", "lines": 0},
            {"path": "/", "lines": 5001}, {"path": "/", "lines": True}, {"path": "/", "max_bytes": 1023},
            {"path": "/", "contains": ""}, {"path": "/", "contains": None}, {"path": "/", "regex": "("},
            {"path": "/", "regex": "x{99999999999}"}, {"path": "/", "regex": "x" * 1025},
            {"path": "/", "regex": "a", "contains": "a"},
        )
