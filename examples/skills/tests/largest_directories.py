import contextlib
import io
import json
import os
import time

from tests.harness import Case, load, run

MEGABYTE = 1024 * 1024


class LargestDirectories(Case):
    def setUp(self):
        self.root = self.directory()

    def fill(self, path, size):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))
        return file

    def walk(self, **args):
        return self.succeeds("largest_directories", {"path": str(self.root), **args})

    def test_the_largest_come_first_and_hold_what_is_below(self):
        self.fill("a/deep/er/still/file", 3 * MEGABYTE)
        self.fill("b/file", MEGABYTE)
        self.fill("file", 10)
        result, stderr = self.walk(depth=2)
        self.assertTrue(result["complete"])
        self.assertEqual((result["files"], result["directories"], result["unreadable"]), (3, 6, 0))
        names = [os.path.relpath(entry["path"], self.root) for entry in result["largest"]]
        self.assertEqual(names, ["a", "a/deep", "b"])
        a, _, b = result["largest"]
        self.assertGreaterEqual(a["bytes"], 3 * MEGABYTE)
        self.assertLess(a["own_bytes"], MEGABYTE)
        self.assertGreaterEqual(b["own_bytes"], MEGABYTE)
        self.assertGreaterEqual(result["bytes"], a["bytes"] + b["bytes"])
        self.assertRegex(stderr, r"\Adone: 8 entries in 6 directories\n\Z")
        self.assertEqual(len(self.walk(count=1)[0]["largest"]), 1)

    def test_links_are_not_followed_and_hard_links_count_once(self):
        elsewhere = self.directory()
        (elsewhere / "large").write_bytes(os.urandom(MEGABYTE))
        file = self.fill("a/file", MEGABYTE)
        os.link(file, self.root / "a" / "again")
        (self.root / "link").symlink_to(elsewhere)
        (self.root / "loop").symlink_to(self.root)
        result, _ = self.walk()
        self.assertLess(result["bytes"], 1.5 * MEGABYTE)
        self.assertEqual(len(result["largest"]), 1)

    def test_any_name_comes_back(self):
        for name in ('quo"te', "new\nline", "-rf", "$(id)", "日本"):
            self.fill(f"{name}/file", 1)
        os.mkdir(os.fsencode(self.root) + b"/\xff")
        code, result, _ = run("largest_directories", {"path": str(self.root)})
        names = {os.path.relpath(entry["path"], self.root) for entry in result["largest"]}
        self.assertEqual((code, names), (0, {'quo"te', "new\nline", "-rf", "$(id)", "日本", "\ufffd"}))

    def test_deeper_than_a_path_may_be_long(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.root)
        for _ in range(30):
            os.mkdir("x" * 200)
            os.chdir("x" * 200)
        result, _ = self.walk(depth=1)
        self.assertEqual((result["directories"], result["unreadable"]), (31, 0))

    def test_directories_that_cannot_be_opened_are_counted(self):
        for name in ("a", "b", "c"):
            self.fill(f"{name}/file", 1)
        module = load("largest_directories")
        walk = module.Walk(depth=3, count=10, max_seconds=60)
        fill = walk.fill

        def swap(directory):
            fill(directory)
            if directory.depth == 0:  # root may read everything, so the directories go away or turn into a link
                (self.root / "a" / "file").unlink()
                (self.root / "a").rmdir()
                (self.root / "b").rename(self.root / "moved")
                (self.root / "b").symlink_to("/")

        walk.fill = swap
        root = walk.run(str(self.root))
        self.assertEqual((walk.unreadable, walk.directories, root.complete), (2, 2, False))

    def test_other_file_systems_are_left_out(self):
        walk = load("largest_directories").Walk(depth=1, count=1, max_seconds=60)
        root = walk.open("/")
        self.addCleanup(os.close, root.descriptor)
        self.assertIsNone(walk.open("proc", root))
        self.assertEqual((walk.other_file_systems, walk.unreadable), (1, 0))

    def test_when_time_is_up_the_rest_is_missing_and_it_says_so(self):
        for number in range(100):
            os.mkdir(self.root / str(number))
        module = load("largest_directories")
        walk = module.Walk(depth=3, count=10, max_seconds=60)
        walk.next_line = 0
        opened = walk.open

        def slow(name, parent=None):
            if walk.directories == 20:
                walk.deadline = time.monotonic()
            return opened(name, parent)

        walk.open = slow
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            root = walk.run(str(self.root))
        self.assertRegex(stderr.getvalue(), r"\A0 s: 0 entries, at /")
        self.assertEqual((walk.late, root.complete, len(walk.largest)), (True, False, 10))
        self.assertLess(walk.directories, 100)
        json.dumps([item[-1] for item in walk.largest])

    def test_what_is_no_directory_fails(self):
        self.fails("largest_directories", {"path": "/no/such\npath"}, r"/no/such\\npath: No such file")
        self.fails("largest_directories", {"path": str(self.fill("file", 1))}, "Not a directory")

    def test_bad_args_are_refused(self):
        self.refuses(
            "largest_directories",
            {"path": 1}, {"path": "relative"}, {"path": ""}, {"path": "/\0"}, {"path": "/\ud800"}, {"depth": 0},
            {"depth": 17}, {"depth": True}, {"count": 0}, {"count": 201}, {"count": 1.5}, {"count": None},
            {"max_seconds": 0}, {"max_seconds": 101}, {"max_seconds": "1"}, b'{"max_seconds": NaN}',
        )
