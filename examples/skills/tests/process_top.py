import os
import shutil
import subprocess
import sys
import unittest

from tests.harness import Case, load

STAT = "{pid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 {threads} 0 {started} 0 {pages} 0 0\n"


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class ProcessTop(Case):
    def start(self, *command):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child.pid

    def row(self, result, pid):
        return next((row for row in result["processes"] if row["pid"] == pid), None)

    def test_a_busy_process_is_found_by_its_name_only(self):
        pid = self.start(sys.executable, "-c", "while True: pass", "--password=secret")
        result, stderr = self.succeeds("process_top", {"count": 100, "interval_seconds": 0.5})
        row = self.row(result, pid)
        self.assertGreater(row["cpu_percent"], 5)
        self.assertEqual((row["uid"], row["threads"]), (os.getuid(), 1))
        self.assertGreater(row["rss_bytes"], 1024 * 1024)
        self.assertIn("python", row["name"])
        self.assertNotIn("secret", str(result))
        self.assertNotIn("command_lines", result)
        self.assertRegex(stderr, r"\A\d+ processes, measuring for 0.5 s\n\Z")

    def test_command_lines_when_asked_for(self):
        hog = "import sys, time; x = b'x' * 100_000_000; time.sleep(60)"
        pid = self.start(sys.executable, "-c", hog, 'quo"te\nline')
        for _ in range(50):  # until it has taken its memory
            args = {"sort": "rss", "count": 100, "interval_seconds": 0.1, "args": True}
            result, _ = self.succeeds("process_top", args)
            row = self.row(result, pid)
            if row and row["rss_bytes"] > 100_000_000:
                break
        self.assertEqual(result["command_lines"][str(pid)], [sys.executable, "-c", hog, 'quo"te\nline'])
        sizes = [row["rss_bytes"] for row in result["processes"]]
        self.assertEqual(sizes, sorted(sizes, reverse=True))

    def test_the_count_is_kept_to(self):
        result, _ = self.succeeds("process_top", {"count": 1, "interval_seconds": 0.1})
        self.assertEqual(len(result["processes"]), 1)
        self.assertGreater(result["seen"], 1)

    def fake(self):
        """A module that reads a /proc of its own."""
        module = load("process_top")
        module.PROC = self.directory()
        (module.PROC / "self").mkdir()
        (module.PROC / "uptime").write_text("1 1\n")
        return module

    def put(self, module, pid, **fields):
        directory = module.PROC / str(pid)
        directory.mkdir(exist_ok=True)
        values = {"name": "x", "user": 0, "system": 0, "threads": 1, "started": 1, "pages": 1} | fields
        (directory / "stat").write_text(STAT.format(pid=pid, **values))

    def test_names_may_hold_anything(self):
        module = self.fake()
        self.put(module, 999_001, name=") R 1 (evil) (")
        ((_, row),) = module.processes().items()
        self.assertEqual((row["name"], row["pid"], row["threads"]), (") R 1 (evil) (", 999_001, 1))

    def test_processes_that_vanish_and_pids_used_again(self):
        module = self.fake()
        for pid in (999_001, 999_002, 999_003):
            self.put(module, pid, user=100_000)
        before = module.processes()
        shutil.rmtree(module.PROC / "999001")
        (module.PROC / "999004").mkdir()  # went away between the listing and the reading
        self.put(module, 999_002, user=5, started=7)
        self.put(module, 999_003, user=100_000 + module.TICKS_PER_SECOND)
        after = module.processes()
        self.assertEqual(sorted(after), [(999_002, 7), (999_003, 1)])
        self.assertNotIn((999_002, 7), before)
        again = module.measured(after[999_002, 7], None, after[999_002, 7]["at"] - 1)
        self.assertAlmostEqual(again["cpu_percent"], 500 / module.TICKS_PER_SECOND, delta=0.1)
        old, new = before[999_003, 1], after[999_003, 1]
        self.assertAlmostEqual(module.measured(new | {"at": old["at"] + 2}, old, 0)["cpu_percent"], 50)
        (module.PROC / "999002" / "cmdline").write_bytes(b"some\0thing\0")
        self.assertEqual(module.command_line(after[999_002, 7]), ["some", "thing"])
        self.assertIsNone(module.command_line(before[999_002, 1]), "the command line of another process")

    def test_bad_args_are_refused(self):
        self.refuses(
            "process_top",
            {"sort": "io"}, {"sort": ["cpu"]}, {"sort": None}, {"count": 0}, {"count": 101}, {"count": True},
            {"interval_seconds": 0}, {"interval_seconds": 6}, {"interval_seconds": "1"}, {"args": 1}, {"args": "true"},
        )
