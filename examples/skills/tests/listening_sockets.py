import contextlib
import os
import socket
import sys
import unittest

from tests.harness import Case, load, run


@unittest.skipUnless(sys.platform == "linux", "its os gate says linux")
class ListeningSockets(Case):
    def listen(self, family, kind, host):
        stream = self.enterContext(contextlib.closing(socket.socket(family, kind)))
        try:
            stream.bind((host, 0))
        except OSError as error:
            self.skipTest(f"cannot bind {host}: {error}")
        if kind == socket.SOCK_STREAM:
            stream.listen()
        return stream.getsockname()[1], os.fstat(stream.fileno()).st_ino

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
        self.refuses(
            "listening_sockets",
            {"protocol": "sctp"}, {"protocol": 1}, {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": True},
            {"port": 80.5}, {"port": None},
        )

    def test_addresses_of_the_kernel_are_printed_as_people_write_them(self):
        module = load("listening_sockets")
        if sys.byteorder == "little":
            self.assertEqual(module.address("0100007F"), "127.0.0.1")
            self.assertEqual(module.address("B80D01200000000067452301EFCDAB89"), "2001:db8::123:4567:89ab:cdef")
            self.assertEqual(module.address("0000000000000000FFFF00000101A8C0"), "::ffff:192.168.1.1")
        self.assertEqual(module.address("0" * 32), "::")
