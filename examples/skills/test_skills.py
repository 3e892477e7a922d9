#!/usr/bin/env python3
"""Runs the example skills as a node does: no environment but `env_allow`, args on stdin, one JSON object on stdout."""

import contextlib
import http.server
import importlib.util
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKILLS = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/skill.json"))}
sys.dont_write_bytecode = True


def run(name, args, **extra):
    """Exit code, result (None when it failed) and stderr of one invocation."""
    manifest = SKILLS[name]
    env = {key: value for key, value in (os.environ | extra).items() if key in manifest["env_allow"]}
    stdin = args if isinstance(args, bytes) else json.dumps(args).encode()
    child = subprocess.run(
        [HERE / name / manifest["entry"]], cwd=HERE / name, env=env, input=stdin, capture_output=True, timeout=30
    )
    stderr = child.stderr.decode()
    if child.returncode:
        assert not child.stdout, child.stdout
        return child.returncode, None, stderr
    result = json.loads(child.stdout.decode())
    assert isinstance(result, dict), result
    return 0, result, stderr


class Manifests(unittest.TestCase):
    def test_every_manifest_keeps_the_contract(self):
        self.assertEqual(sorted(SKILLS), ["disk_usage", "http_probe", "listening_sockets"])
        for name, manifest in SKILLS.items():
            with self.subTest(name):
                self.assertEqual(manifest["name"], name)
                self.assertEqual(manifest["class"], "safe")
                self.assertTrue(os.access(HERE / name / manifest["entry"], os.X_OK))
                schema = manifest["schema"]
                self.assertIs(schema["additionalProperties"], False)
                for member in schema["properties"].values():
                    self.assertTrue(member["description"].endswith("."), member)

    def test_what_is_no_args_object_is_refused_with_one_line(self):
        for name in SKILLS:
            for args in (b"[]", b"{", b"nonsense", b'{"no_such_member": 1}', b"\xff\xfe", b"[" * 60000, b'{} {}'):
                with self.subTest(name, args=args[:30]):
                    code, _, stderr = run(name, args)
                    self.assertEqual(code, 2, stderr)
                    self.assertRegex(stderr, rf"\A{name}: cannot read args: [^\n]+\n\Z")


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


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class ListeningSockets(unittest.TestCase):
    def listen(self, family, kind, host):
        stream = self.enterContext(contextlib.closing(socket.socket(family, kind)))
        try:
            stream.bind((host, 0))
        except OSError as error:
            self.skipTest(f"cannot bind {host}: {error}")
        if kind == socket.SOCK_STREAM:
            stream.listen()
        return stream.getsockname()[1], os.fstat(stream.fileno()).st_ino

    def enterContext(self, manager):  # unittest has it from Python 3.11
        self.addCleanup(manager.__exit__, None, None, None)
        return manager.__enter__()

    def check(self, family, kind, host, shown):
        port, inode = self.listen(family, kind, host)
        protocol = "tcp" if kind == socket.SOCK_STREAM else "udp"
        expected = {"protocol": protocol, "address": shown, "port": port, "uid": os.getuid(), "inode": inode}
        for args in ({}, {"protocol": protocol}, {"port": port, "protocol": "all"}):
            code, result, _ = run("listening_sockets", args)
            self.assertEqual(code, 0)
            self.assertIn(expected, result["sockets"])
            self.assertEqual(result["count"], len(result["sockets"]))
        other = {"protocol": {"tcp": "udp", "udp": "tcp"}[protocol]}
        self.assertNotIn(expected, run("listening_sockets", other)[1]["sockets"])

    def test_tcp(self):
        self.check(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", "127.0.0.1")

    def test_udp_on_every_interface(self):
        self.check(socket.AF_INET, socket.SOCK_DGRAM, "0.0.0.0", "0.0.0.0")

    def test_tcp6(self):
        self.check(socket.AF_INET6, socket.SOCK_STREAM, "::1", "::1")

    def test_udp6(self):
        self.check(socket.AF_INET6, socket.SOCK_DGRAM, "::", "::")

    def test_progress_goes_to_stderr(self):
        self.assertRegex(run("listening_sockets", {"protocol": "tcp"})[2], r"\Atcp: \d+ listening\ntcp6: [^\n]+\n\Z")

    def test_bad_args_are_refused(self):
        for args in (
            {"protocol": "sctp"}, {"protocol": 1}, {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": True},
            {"port": 80.5}, {"port": None},
        ):
            with self.subTest(args):
                self.assertEqual(run("listening_sockets", args)[0], 2)

    def test_addresses_of_the_kernel_are_printed_as_people_write_them(self):
        path = HERE / "listening_sockets" / SKILLS["listening_sockets"]["entry"]
        spec = importlib.util.spec_from_file_location("listening_sockets", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        if sys.byteorder == "little":
            self.assertEqual(module.address("0100007F"), "127.0.0.1")
            self.assertEqual(module.address("B80D01200000000067452301EFCDAB89"), "2001:db8::123:4567:89ab:cdef")
            self.assertEqual(module.address("0000000000000000FFFF00000101A8C0"), "::ffff:192.168.1.1")
        self.assertEqual(module.address("0" * 32), "::")


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.server.seen.append((self.command, self.path))
        if self.path.startswith("/slow"):
            time.sleep(1.5)
        status = {"/moved": 302, "/broken": 500}.get(self.path, 200)
        body = b"x" * (3_000_000 if self.path == "/large" else 5)
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body) + (10 if self.path == "/cut" else 0)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(OSError):
                self.wfile.write(body)

    do_GET = do_HEAD = do_OPTIONS = answer

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # clients that hang up are part of the tests


@contextlib.contextmanager
def serving(context=None):
    with Server(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class HttpProbe(unittest.TestCase):
    def probe(self, path, **args):
        with serving() as server:
            code, result, stderr = run("http_probe", {"url": f"http://127.0.0.1:{server.server_port}{path}", **args})
        self.assertEqual(code, 0, stderr)
        return result, stderr, server.seen

    def test_a_good_answer(self):
        result, stderr, seen = self.probe("/a b".replace(" ", "%20") + "?q=ü")
        self.assertTrue(result["ok"])
        self.assertEqual(result["status"], 200)
        (probe,) = result["probes"]
        self.assertEqual((probe["body_bytes"], probe["address"]), (5, "127.0.0.1"))
        self.assertGreater(probe["header_bytes"], 0)
        self.assertEqual(list(probe["timings_ms"]), ["lookup", "connect", "first_byte", "body", "total"])
        self.assertEqual(result["summary"] | {"total_ms": 0}, {"probes": 1, "ok": 1, "failed": 0, "total_ms": 0})
        self.assertRegex(stderr, r"\Aprobe 1/1: ok: status 200 in [\d.]+ ms\n\Z")
        self.assertEqual(seen, [("GET", "/a%20b?q=%C3%BC")])

    def test_one_line_for_each_of_several_probes(self):
        result, stderr, seen = self.probe("/", method="HEAD", count=3)
        self.assertEqual(len(result["probes"]), 3)
        self.assertEqual(len(stderr.splitlines()), 3)
        self.assertEqual(seen, [("HEAD", "/")] * 3)
        self.assertTrue(result["ok"])

    def test_a_redirect_is_reported_and_not_followed(self):
        result, _, seen = self.probe("/moved")
        self.assertEqual((result["ok"], result["status"]), (True, 302))
        self.assertEqual(result["probes"][0]["location"], "/elsewhere")
        self.assertEqual(seen, [("GET", "/moved")])

    def test_the_expected_status_decides(self):
        self.assertFalse(self.probe("/broken")[0]["ok"])
        self.assertTrue(self.probe("/broken", expect_status=500)[0]["ok"])
        result = self.probe("/moved", expect_status=200)[0]
        self.assertEqual(result["probes"][0]["error"], "status 302, expected 200")

    def test_a_large_body_is_read_up_to_the_limit(self):
        result, _, _ = self.probe("/large")
        self.assertTrue(result["ok"])
        self.assertTrue(result["probes"][0]["body_cut"])

    def test_an_answer_cut_short_is_not_ok(self):
        result, _, _ = self.probe("/cut")
        self.assertFalse(result["ok"])
        self.assertIn("IncompleteRead", result["probes"][0]["error"])

    def test_a_slow_answer_runs_into_the_time_out(self):
        start = time.monotonic()
        result, _, _ = self.probe("/slow", timeout_seconds=0.3)
        self.assertLess(time.monotonic() - start, 30)
        self.assertFalse(result["ok"])
        self.assertRegex(result["probes"][0]["error"], "within 0.3 s|TimeoutError|timed out")

    def test_a_refused_connection_is_a_result(self):
        with contextlib.closing(socket.socket()) as unused:  # bound, but nobody listens
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}/"
            code, result, stderr = run("http_probe", {"url": url, "count": 2})
        self.assertEqual((code, result["ok"], result["status"]), (0, False, None))
        self.assertIn("ConnectionRefusedError", result["probes"][0]["error"])
        self.assertEqual(result["summary"], {"probes": 2, "ok": 0, "failed": 2})
        self.assertEqual(len(stderr.splitlines()), 2)

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_certificate_and_its_expiry(self):
        with tempfile.TemporaryDirectory() as directory:
            key, cert = (str(pathlib.Path(directory, name)) for name in ("key.pem", "cert.pem"))
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-days", "20", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
                 "-keyout", key, "-out", cert],
                check=True, capture_output=True,
            )
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            with serving(context) as server:
                args = {"url": f"https://127.0.0.1:{server.server_port}/"}
                trusted = run("http_probe", args, SSL_CERT_FILE=cert)[1]
                foreign = run("http_probe", args)[1]
        self.assertTrue(trusted["ok"], trusted)
        self.assertIn(trusted["probes"][0]["tls"]["expires_in_days"], (19, 20))
        self.assertIn("tls", trusted["probes"][0]["timings_ms"])
        self.assertFalse(foreign["ok"])
        self.assertIn("SSLCertVerificationError", foreign["probes"][0]["error"])

    def test_bad_args_are_refused(self):
        url = "http://127.0.0.1:1/"
        for args in (
            {}, {"url": 1}, {"url": "ftp://host/"}, {"url": "file:///etc/passwd"}, {"url": "/etc/passwd"},
            {"url": "http://"},
            {"url": "http://a b/"}, {"url": "http://a/\r\nX: y"}, {"url": "http://[::1/"}, {"url": "http://a:99999/"},
            {"url": "http://a:0/"}, {"url": "http://user:secret@a/"}, {"url": "http://a/\ud800"},
            {"url": url, "method": "POST"}, {"url": url, "count": 0}, {"url": url, "count": 11},
            {"url": url, "count": 1.5}, {"url": url, "count": True}, {"url": url, "timeout_seconds": 0},
            {"url": url, "timeout_seconds": 60}, {"url": url, "timeout_seconds": "5"},
            {"url": url, "expect_status": 99}, {"url": url, "expect_status": None},
        ):
            with self.subTest(args):
                code, _, stderr = run("http_probe", args)
                self.assertEqual(code, 2)
                self.assertNotIn("secret", stderr)


if __name__ == "__main__":
    unittest.main()
