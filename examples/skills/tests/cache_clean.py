import contextlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock

from tests.harness import SKILLS, SOURCE, Case, inside, load

DAY = 86400


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class CacheClean(Case):
    def setUp(self):
        base = self.directory()
        self.root, self.outside = base / "cache", base / "outside"
        self.root.mkdir()
        self.outside.mkdir()
        self.home = base / "skill"
        shutil.copytree(SOURCE / "cache_clean", self.home)
        (self.home / "roots.txt").write_text(f"# for a test\n\n{self.root}\n")
        self.precious = self.old(self.outside / "precious")

    def old(self, path, days=100, read=None):
        """A file that was changed and read so many days ago."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 5000)
        now = time.time()
        os.utime(path, (now - (days if read is None else read) * DAY, now - days * DAY))
        return path

    def clean(self, path=None, **args):
        return self.succeeds("cache_clean", {"path": str(path or self.root)} | args, home=self.home)

    def tearDown(self):
        self.assertTrue(self.precious.exists(), "something outside was deleted")

    def cannot(self, args, words):
        """Checks that it fails with one line that says why. In this process: a start for each takes long."""
        code, stdout, stderr = inside(load("cache_clean", self.home), args)
        self.assertEqual((code, stdout), (1, ""), stderr)
        self.assertRegex(stderr, rf"\Acache_clean: [^\n]*{words}[^\n]*\n\Z")

    def left(self):
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())

    def test_a_dry_run_is_the_default_and_deletes_nothing(self):
        self.old(self.root / "a" / "old")
        for args in ({}, {"dry_run": True}):
            result, stderr = self.clean(**args)
            self.assertEqual((result["dry_run"], result["complete"]), (True, True))
            self.assertEqual(result["matched"]["files"], 1)
            self.assertGreaterEqual(result["matched"]["bytes"], 4096)
            self.assertEqual(result["deleted"], {"files": 0, "bytes": 0})
            self.assertRegex(stderr, r"/a: 1 of 1 entries are old, \d+ bytes: dry run\n\Z")
        self.assertEqual(self.left(), ["a/old"])

    def test_only_old_files_go(self):
        self.old(self.root / "old")
        self.old(self.root / "a" / "b" / "old")
        self.old(self.root / "new", days=29)
        self.old(self.root / "read", days=100, read=1)
        self.old(self.root / "from the future", days=-10)
        result, stderr = self.clean(dry_run=False)
        self.assertEqual(result["matched"], result["deleted"])
        self.assertEqual((result["deleted"]["files"], result["failed"], result["kept"]["recent"]), (2, 0, 3))
        self.assertEqual(self.left(), ["from the future", "new", "read"])
        self.assertTrue((self.root / "a" / "b").is_dir(), "directories stay")
        self.assertEqual((result["directories"], len(stderr.splitlines())), (3, 3))
        again, _ = self.clean(dry_run=False)
        self.assertEqual(again["matched"]["files"], 0)

    def test_a_part_of_a_cache(self):
        self.old(self.root / "a" / "old")
        self.old(self.root / "ab" / "old")
        self.clean(self.root / "a", dry_run=False)
        self.assertEqual(self.left(), ["ab/old"])

    def test_links_and_special_files_stay_and_lead_nowhere(self):
        (self.root / "file").symlink_to(self.precious)
        (self.root / "directory").symlink_to(self.outside)
        os.mkfifo(self.root / "fifo")
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as stream:
            stream.bind(str(self.root / "socket"))
        for name in ("file", "directory", "fifo", "socket"):
            os.utime(self.root / name, (1, 1), follow_symlinks=False)
        os.link(self.precious, self.root / "hard link")
        result, _ = self.clean(dry_run=False)
        self.assertEqual(result["kept"], {"recent": 0, "links": 2, "special": 2})
        self.assertEqual(result["deleted"], {"files": 1, "bytes": 0}, "a further hard link frees nothing")

    def test_odd_names(self):
        names = ['quo"te', "'", "new\nline", "-rf", "--", "$(id)", "*", "~", "日本", " "]
        for name in names:
            self.old(self.root / name / name)
        self.old(self.root / os.fsdecode(b"\xff") / os.fsdecode(b"\xfe"))
        result, stderr = self.clean(dry_run=False)
        self.assertEqual((result["deleted"]["files"], self.left()), (len(names) + 1, []))
        self.assertEqual(len(stderr.splitlines()), len(names) + 2)

    def test_a_limit_of_files(self):
        for number in range(5):
            self.old(self.root / str(number) / "old")
        result, _ = self.clean(dry_run=False, max_files=2)
        self.assertEqual((result["deleted"]["files"], result["complete"], len(self.left())), (2, False, 3))

    def test_paths_that_are_not_below_a_root_are_refused(self):
        (self.root / "link").symlink_to(self.outside)
        (self.root.parent / "cache2").mkdir()
        for path in (self.outside, f"{self.root}2", self.root.parent, "/etc", "/proc/self/cwd"):
            self.cannot({"path": str(path), "dry_run": False}, "nothing was deleted")
        self.cannot({"path": f"{self.root}/link", "dry_run": False}, "symbolic link")
        self.cannot({"path": f"{self.root}/no\nsuch"}, r"no\\nsuch: No such file")
        self.cannot({"path": str(self.old(self.root / "file"))}, "Not a directory")

    def test_a_root_that_is_a_link_is_not_followed(self):
        self.root.rmdir()
        self.root.symlink_to(self.outside)
        self.fails("cache_clean", {"path": str(self.root), "dry_run": False}, "symbolic link", home=self.home)

    def test_a_list_of_roots_that_is_wrong_or_missing_deletes_nothing(self):
        for text in ("/\n", "relative\n", f"{self.outside}/../cache\n", "/a//b\n", f"{self.root}/\n"):
            (self.home / "roots.txt").write_text(f"{self.root}\n{text}")
            self.cannot({"path": str(self.root)}, "roots.txt")
        (self.home / "roots.txt").unlink()
        self.fails("cache_clean", {"path": str(self.root)}, "cannot read roots.txt", home=self.home)

    def test_the_list_that_comes_with_it_is_sound(self):
        module = load("cache_clean")
        self.assertTrue(module.is_allowed("/var/cache/apt/archives/partial"))
        for path in ("/var/cache", "/var/cache/debconf", "/etc", "/tmp", "/var/cache/dnf2"):
            self.assertFalse(module.is_allowed(path), path)

    def swapped(self, before):
        """A run in which `before` is called just before each directory is opened."""
        module = load("cache_clean", self.home)
        opened = module.open_directory

        def swap(name, parent):
            before(name)
            return opened(name, parent)

        module.open_directory = swap
        args = {"path": str(self.root), "dry_run": False}
        with contextlib.redirect_stderr(io.StringIO()):
            return module.Clean(module.Args(json.dumps(args).encode())).run()

    def test_a_directory_swapped_for_a_link_leads_nowhere(self):
        self.old(self.root / "victim" / "precious")

        def swap(name):
            if name == "victim":
                (self.root / "victim").rename(self.root.parent / "away")
                (self.root / "victim").symlink_to(self.outside)

        result = self.swapped(swap)
        self.assertEqual((result["deleted"]["files"], result["skipped_directories"]["unreadable"]), (0, 1))

    def test_a_parent_swapped_while_it_is_open_leads_nowhere(self):
        self.old(self.root / "a" / "b" / "precious")
        (self.outside / "b").mkdir()
        inner = self.old(self.outside / "b" / "precious")

        def swap(name):
            if name == "b":
                (self.root / "a").rename(self.root / "moved")
                (self.root / "a").symlink_to(self.outside)

        self.assertEqual(self.swapped(swap)["deleted"]["files"], 1)
        self.assertTrue(inner.exists())

    def test_somebody_who_swaps_all_the_time(self):
        real, link = self.root / "real", self.root / "link"
        over = threading.Event()

        def swap():
            while not over.is_set():
                with contextlib.suppress(OSError):
                    (self.root / "victim").rename(real)
                    link.symlink_to(self.outside)
                    link.rename(self.root / "victim")
                    (self.root / "victim").unlink()
                    real.rename(self.root / "victim")

        thread = threading.Thread(target=swap)
        self.old(self.root / "victim" / "precious")
        thread.start()
        try:
            module, seen = load("cache_clean", self.home), set()
            end = time.monotonic() + 1
            while time.monotonic() < end:
                code, _, stderr = inside(module, {"path": str(self.root), "dry_run": False})
                self.assertEqual(code, 0, stderr)
                code, _, stderr = inside(module, {"path": f"{self.root}/victim", "dry_run": False})
                seen.add(code)
            self.assertEqual(seen, {0, 1}, "the race never came about")
        finally:
            over.set()
            thread.join()

    def test_other_file_systems_are_left_alone(self):
        self.old(self.root / "mounted" / "old")
        self.old(self.root / "old")
        module = load("cache_clean", self.home)
        mount = module.mount
        inode = (self.root / "mounted").stat().st_ino
        module.mount = lambda fd: ("another",) if os.fstat(fd).st_ino == inode else mount(fd)
        args = module.Args(json.dumps({"path": str(self.root), "dry_run": False}).encode())
        with contextlib.redirect_stderr(io.StringIO()):
            result = module.Clean(args).run()
        self.assertEqual(result["skipped_directories"]["other_file_system"], 1)
        self.assertEqual(self.left(), ["mounted/old"])

    def test_a_bind_mount_of_the_same_device_is_another_mount(self):
        (self.root / "bind").mkdir()
        args = json.dumps({"path": str(self.root), "dry_run": False})
        entry = self.home / SKILLS["cache_clean"]["entry"]
        script = f"mount --bind '{self.outside}' '{self.root}/bind' && exec '{entry}'"
        child = subprocess.run(
            ["unshare", "--mount", "--map-root-user", "sh", "-c", script] if shutil.which("unshare") else ["false"],
            input=args.encode(), capture_output=True, check=False,
        )
        if child.returncode:
            self.skipTest(f"cannot mount here: {child.stderr.decode()}")
        result = json.loads(child.stdout)
        self.assertEqual((result["skipped_directories"]["other_file_system"], result["matched"]["files"]), (1, 0))

    def test_what_cannot_be_deleted_is_counted(self):
        self.old(self.root / "old")
        module = load("cache_clean", self.home)
        args = module.Args(json.dumps({"path": str(self.root), "dry_run": False}).encode())
        refused = unittest.mock.patch.object(module.os, "unlink", side_effect=PermissionError(1, "not permitted"))
        with refused, contextlib.redirect_stderr(io.StringIO()):
            result = module.Clean(args).run()
        self.assertEqual((result["failed"], result["deleted"]["files"], self.left()), (1, 0, ["old"]))

    def test_deeper_than_it_goes_is_counted(self):
        self.old(self.root.joinpath(*"x" * 140) / "old")
        result, _ = self.clean(dry_run=False)
        self.assertEqual((result["directories"], result["skipped_directories"]["too_deep"]), (128, 1))

    def test_bad_args_are_refused(self):
        root = str(self.root)
        self.refuses(
            "cache_clean",
            {}, {"path": 1}, {"path": None}, {"path": ""}, {"path": "/"}, {"path": "cache"}, {"path": f"{root}/"},
            {"path": f"/{root}"}, {"path": f"{root}/../outside"}, {"path": f"{root}/./a"}, {"path": f"{root}/.."},
            {"path": f"{root}\0"}, {"path": f"{root}/\ud800"}, {"path": root, "dry_run": "false"},
            {"path": root, "dry_run": 0}, {"path": root, "dry_run": None}, {"path": root, "older_than_days": 0},
            {"path": root, "older_than_days": -1}, {"path": root, "older_than_days": 1.5},
            {"path": root, "older_than_days": True}, {"path": root, "older_than_days": 3651},
            {"path": root, "max_files": 0}, b'{"path": "/a", "dry_run": true, "dry_run": false}',
            home=self.home,
        )
