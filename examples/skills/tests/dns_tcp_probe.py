import contextlib
import json
import socket
import time
import unittest.mock

from tests.harness import Case, inside, load


class DnsTcpProbe(Case):
    def listen(self, family=socket.AF_INET, host="127.0.0.1", backlog=5):
        stream = self.enterContext(contextlib.closing(socket.socket(family)))
        try:
            stream.bind((host, 0))
        except OSError as error:
            self.skipTest(f"cannot bind {host}: {error}")
        if backlog:
            stream.listen(backlog)
        return stream.getsockname()[1]

    def with_answer(self, rows, **args):
        """The skill with another answer of the name server."""
        module = load("dns_tcp_probe")
        with unittest.mock.patch.object(module.socket, "getaddrinfo", rows):
            code, stdout, stderr = inside(module, {"host": "many.test", **args})
        self.assertEqual(code, 0, stderr)
        return json.loads(stdout), stderr

    def test_an_address_is_resolved_without_a_port(self):
        result, stderr = self.succeeds("dns_tcp_probe", {"host": "127.0.0.1"})
        self.assertEqual((result["ok"], result["port"]), (True, None))
        self.assertEqual(result["addresses"], [{"address": "127.0.0.1", "family": "ipv4"}])
        self.assertEqual(result["summary"], {"addresses": 1})
        self.assertRegex(stderr, r"\Alook-up of 127.0.0.1: 1 addresses in [\d.]+ ms\n\Z")

    def test_a_port_that_listens(self):
        for family, host, name in ((socket.AF_INET, "127.0.0.1", "ipv4"), (socket.AF_INET6, "::1", "ipv6")):
            with self.subTest(host):
                result, stderr = self.succeeds("dns_tcp_probe", {"host": host, "port": self.listen(family, host)})
                self.assertTrue(result["ok"])
                (row,) = result["addresses"]
                self.assertEqual((row["address"], row["family"], row["ok"]), (host, name, True))
                self.assertGreaterEqual(row["connect_ms"], 0)
                self.assertEqual(len(stderr.splitlines()), 2)

    def test_a_port_that_is_closed_is_a_result(self):
        result, stderr = self.succeeds("dns_tcp_probe", {"host": "127.0.0.1", "port": self.listen(backlog=0)})
        self.assertEqual((result["ok"], result["lookup"]["ok"]), (False, True))
        self.assertIn("ConnectionRefusedError", result["addresses"][0]["error"])
        self.assertEqual(result["summary"], {"addresses": 1, "tried": 1, "connected": 0, "failed": 1})
        self.assertIn("ConnectionRefusedError", stderr)

    def test_a_name_that_is_not_known_is_a_result(self):
        for host in ("no-such-name.invalid", "-rf", "a..b", "ü.invalid", "x" * 250, "127.0.0.1;id", "$(id)"):
            with self.subTest(host[:20]):
                args = {"host": host, "port": 80, "timeout_seconds": 0.2}
                code, stdout, stderr = inside(load("dns_tcp_probe"), args)
                result = json.loads(stdout)
                self.assertEqual((code, result["ok"], result["addresses"]), (0, False, []), stderr)
                self.assertTrue(result["lookup"]["error"])

    def test_the_family_decides(self):
        result, _ = self.succeeds("dns_tcp_probe", {"host": "::1", "family": "ipv4"})
        self.assertFalse(result["ok"])

    def test_every_address_is_tried_and_one_is_enough(self):
        port = self.listen()
        rows = [(socket.AF_INET, 1, 6, "", (f"127.0.0.{number}", port)) for number in (9, 1, 9)]
        result, stderr = self.with_answer(lambda *_: rows, port=port)
        self.assertTrue(result["ok"])
        self.assertEqual([row["ok"] for row in result["addresses"]], [False, True])
        self.assertEqual(len(stderr.splitlines()), 3)

    def test_many_addresses_are_cut(self):
        rows = [(socket.AF_INET, 1, 6, "", (f"192.0.2.{number}", 0)) for number in range(40)]
        result, _ = self.with_answer(lambda *_: rows)
        self.assertEqual((len(result["addresses"]), result["summary"]["addresses"]), (16, 40))

    def test_a_name_server_that_is_silent_is_left_behind(self):
        start = time.monotonic()
        result, stderr = self.with_answer(lambda *_: time.sleep(2), timeout_seconds=0.1)
        self.assertLess(time.monotonic() - start, 1.9)
        self.assertEqual((result["ok"], result["lookup"]["error"]), (False, "no answer within 0.1 s"))

    def test_bad_args_are_refused(self):
        self.refuses(
            "dns_tcp_probe",
            {}, {"host": 1}, {"host": ""}, {"host": "a b"}, {"host": "a\nb"}, {"host": "a\0"}, {"host": "x" * 254},
            {"host": "http://a/"}, {"host": "user@a"}, {"host": "[::1]"}, {"host": "\ud800"}, {"host": "a", "port": 0},
            {"host": "a", "port": 65536}, {"host": "a", "port": "80"}, {"host": "a", "port": None},
            {"host": "a", "port": True}, {"host": "a", "family": "ipx"}, {"host": "a", "family": []},
            {"host": "a", "timeout_seconds": 0}, {"host": "a", "timeout_seconds": 6},
        )
