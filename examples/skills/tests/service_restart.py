import json
import pathlib
import sys
import unittest
import unittest.mock

from tests.harness import PATH, Case, load, run

# Stands for systemctl: logs how it is called, and answers `show` with show.0 until a restart is asked for, then with
# show.1, show.2 and so on, the last one for ever.
SYSTEMCTL = """#!/bin/sh
here=${0%/*}
for word; do printf '[%s]' "$word"; done >>"$here/calls"
echo >>"$here/calls"
env >"$here/environment"
case " $* " in
*' show '*)
    n=$(cat "$here/next")
    cat "$here/show.$n" || exit 1
    [ "$n" = 0 ] || [ ! -e "$here/show.$((n + 1))" ] || echo $((n + 1)) >"$here/next"
    ;;
*' restart '*)
    if [ -e "$here/refusal" ]; then cat "$here/refusal" >&2; exit 4; fi
    echo 1 >"$here/next"
    ;;
*) exit 9 ;;
esac
"""
JOURNALCTL = """#!/bin/sh
for word; do printf '[%s]' "$word"; done >>"${0%/*}/calls"
echo >>"${0%/*}/calls"
printf 'first line\\nforged: \\033[2Jline\\n'
"""
QUICK = {"wait_seconds": 1, "settle_seconds": 0}


def shown(active, sub, invocation="b", **more):
    known = {"LoadState": "loaded", "ActiveState": active, "SubState": sub, "Result": "success", "MainPID": "42",
             "InvocationID": invocation, "Type": "simple"} | more
    return "".join(f"{key}={value}\n" for key, value in known.items())


RUNNING = shown("active", "running", "a", MainPID="41")


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class ServiceRestart(Case):
    def setUp(self):
        self.bin = self.directory()
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        (self.bin / "next").write_text("0\n")
        self.path = f"{self.bin}:{PATH}"

    def states(self, *states):
        for number, state in enumerate(states):
            (self.bin / f"show.{number}").write_text(state)

    def calls(self):
        calls = self.bin / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def restart(self, **args):
        return self.succeeds("service_restart", {"unit": "web.service"} | QUICK | args, PATH=self.path)

    def was_restarted(self):
        return any("[restart]" in call for call in self.calls())

    def test_a_service_that_comes_up(self):
        self.states(RUNNING, shown("activating", "start", Job="7"), shown("active", "running"))
        result, stderr = self.restart()
        self.assertEqual((result["ok"], result["restarted"], result["unit"]), (True, True, "web.service"))
        self.assertEqual((result["before"]["main_pid"], result["after"]["main_pid"]), (41, 42))
        self.assertEqual(result["after"]["active_state"], "active")
        self.assertEqual(
            stderr.splitlines(),
            ["before: active (running), result success", "restart is asked for",
             "now: activating (start), result success", "now: active (running), result success",
             "journal: first line", "journal: forged: \\x1b[2Jline"],
        )
        (call,) = [call for call in self.calls() if "[restart]" in call]
        self.assertEqual(
            call, "[--system][--no-pager][--no-ask-password][--no-block][restart][--][web.service]"
        )
        self.assertTrue(self.calls()[-1].endswith("[--lines=10][--unit=web.service]"))
        names = {line.split("=")[0] for line in (self.bin / "environment").read_text().splitlines()}
        self.assertLessEqual(names, {"PATH", "LC_ALL", "SYSTEMD_COLORS", "PWD", "OLDPWD", "SHLVL", "_"})

    def test_a_service_that_fails_is_a_result(self):
        self.states(RUNNING, shown("failed", "failed", Result="exit-code", MainPID="0"))
        result, _ = self.restart(journal_lines=0)
        self.assertEqual((result["ok"], result["after"]["result"]), (False, "exit-code"))
        self.assertFalse(any("--unit" in call for call in self.calls()))

    def test_the_old_state_is_not_taken_for_the_new_one(self):
        self.states(RUNNING, shown("active", "running", "a", Job="7"), shown("active", "running", "a", Job="7"),
                    shown("failed", "failed"))
        self.assertFalse(self.restart()[0]["ok"])

    def test_one_that_dies_while_it_settles_is_not_up(self):
        self.states(RUNNING, shown("active", "running"), shown("failed", "failed", Result="signal"))
        self.assertFalse(self.restart(settle_seconds=1)[0]["ok"])

    def test_one_that_never_gets_ready_is_left_alone(self):
        self.states(RUNNING, shown("activating", "start", Job="7"))
        result, stderr = self.restart()
        self.assertEqual((result["ok"], result["after"]["active_state"]), (False, "activating"))
        self.assertIn("not settled after 1 s", stderr)

    def test_a_oneshot_that_ends_well_is_ok(self):
        self.states(shown("inactive", "dead", "", Type="oneshot"), shown("inactive", "dead", Type="oneshot"))
        self.assertTrue(self.restart()[0]["ok"])
        (self.bin / "next").write_text("0\n")
        self.states(RUNNING, shown("inactive", "dead"))
        self.assertFalse(self.restart()[0]["ok"])

    def test_a_unit_that_is_not_there_or_masked_is_left_alone(self):
        for loaded in ("not-found", "masked", "bad-setting", ""):
            self.states(shown("inactive", "dead", LoadState=loaded))
            self.fails("service_restart", {"unit": "web.service"}, "nothing was done", PATH=self.path)
        self.assertFalse(self.was_restarted())

    def test_a_refusal_of_systemd_fails_with_what_it_says(self):
        self.states(RUNNING)
        (self.bin / "refusal").write_text("Access denied\nas it should\n")
        code, _, stderr = run("service_restart", {"unit": "web.service"}, PATH=self.path)
        self.assertEqual(code, 1)
        self.assertRegex(stderr, r"exits with 4: Access denied; as it should\n\Z")

    def test_a_bus_that_is_gone_for_good_fails_and_says_that_restart_was_asked_for(self):
        self.states(RUNNING)
        (self.bin / "show.1").mkdir()
        code, _, stderr = run("service_restart", {"unit": "web.service"} | QUICK, PATH=self.path)
        self.assertEqual(code, 1)
        self.assertIn("restart was asked for, but the state is not known", stderr)

    def test_it_does_not_restart_what_it_runs_in(self):
        module = load("service_restart")
        groups = self.directory() / "cgroup"
        groups.write_text("0::/system.slice/weft-node.service/slot-1\n")
        paths = module.pathlib.Path
        module.pathlib = type("pathlib", (), {"Path": lambda path: groups if "cgroup" in path else paths(path)})
        self.assertTrue(module.runs_in("weft-node.service"))
        self.assertFalse(module.runs_in("node.service"))

    def test_hostile_names_reach_nobody(self):
        self.states(RUNNING, shown("active", "running"))
        self.enterContext(unittest.mock.patch.dict("os.environ", PATH=self.path))
        self.refuses(
            "service_restart",
            {}, {"unit": None}, {"unit": 1}, {"unit": ["web.service"]}, {"unit": ""},
            *({"unit": unit} for unit in (
                "web", "web.socket", "multi-user.target", "-web.service", "--force.service", "--host=evil.service",
                "web.service\n", "web.service ", "web.service\0", "web.service;id", "$(id).service", "`id`.service",
                "'web'.service", '"web".service', "*.service", "w?b.service", "[w]eb.service", "../web.service",
                "/etc/systemd/system/web.service", "a.service b.service", "a.service,b.service", "worker@.service",
                "worker@a/b.service", "a@b@c.service", "wéb.service", "web\\.service", "web\\x2F.service",
                ".service", "x" * 250 + ".service",
            )),
            {"unit": "a.service", "wait_seconds": 0}, {"unit": "a.service", "wait_seconds": 301},
            {"unit": "a.service", "settle_seconds": -1}, {"unit": "a.service", "journal_lines": 201},
            {"unit": "a.service", "journal_lines": True}, b'{"unit": "a.service", "unit": "b.service"}',
        )
        self.assertEqual(self.calls(), [])

    def test_good_names_and_the_pattern_of_the_schema(self):
        module = load("service_restart")
        pattern = json.loads(pathlib.Path(module.__file__).with_name("skill.json").read_text())
        pattern = pattern["schema"]["properties"]["unit"]["pattern"]
        self.assertEqual(pattern.replace(r"(?:[A-Za-z0-9:_.-]|\\x[0-9a-f]{2})", module.NAME),
                         f"^{module.UNIT.pattern}$")
        for unit in ("nginx.service", "worker@2.service", r"backup@srv-my\x2ddata.service", "dbus-org.a.b1.service",
                     "_x.service", "a:b.service", "user@1000.service"):
            self.assertTrue(module.UNIT.fullmatch(unit), unit)
