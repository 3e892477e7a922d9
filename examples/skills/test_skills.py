#!/usr/bin/env python3
"""All tests of the example skills. `test_skills.py CacheClean` runs those of one."""

import sys

sys.dont_write_bytecode = True

import unittest

from tests.cache_clean import CacheClean
from tests.disk_usage import DiskUsage
from tests.dns_tcp_probe import DnsTcpProbe
from tests.http_probe import HttpProbe
from tests.largest_directories import LargestDirectories
from tests.listening_sockets import ListeningSockets
from tests.log_tail import LogTail
from tests.manifests import Manifests
from tests.process_top import ProcessTop
from tests.service_restart import ServiceRestart

if __name__ == "__main__":
    unittest.main()
