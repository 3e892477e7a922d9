import contextlib
import http.server
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

from tests.harness import Case, run


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


class HttpProbe(Case):
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
        self.refuses(
            "http_probe",
            {}, {"url": 1}, {"url": "ftp://host/"}, {"url": "file:///etc/passwd"}, {"url": "/etc/passwd"},
            {"url": "http://"},
            {"url": "http://a b/"}, {"url": "http://a/\r\nX: y"}, {"url": "http://[::1/"}, {"url": "http://a:99999/"},
            {"url": "http://a:0/"}, {"url": "http://user:secret@a/"}, {"url": "http://a/\ud800"},
            {"url": url, "method": "POST"}, {"url": url, "count": 0}, {"url": url, "count": 11},
            {"url": url, "count": 1.5}, {"url": url, "count": True}, {"url": url, "timeout_seconds": 0},
            {"url": url, "timeout_seconds": 60}, {"url": url, "timeout_seconds": "5"},
            {"url": url, "expect_status": 99}, {"url": url, "expect_status": None},
        )
        code, _, stderr = run("http_probe", {"url": "http://user:secret@a/"})
        self.assertEqual(code, 2)
        self.assertNotIn("secret", stderr)
