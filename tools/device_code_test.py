#!/usr/bin/env python3
"""What tools/device_code.py calls changed, in a made-up source tree."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("device_code.py")


class DeviceCode(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name).resolve()
        (self.root / "tools").mkdir()
        (self.root / "src").mkdir()
        shutil.copy(SCRIPT, self.root / "tools")
        self.write("src/host.h", "struct Op {};\n")
        self.write("src/device.h", "__device__ float twice(float x);\n")
        self.write("src/between.h", '#include "device.h"\n')
        self.write("src/a.cu", '#include "between.h"\n#include <vector>\n')
        self.write("src/b.cu", '#include "host.h"\n')
        self.run_script("--record")

    def write(self, name, text):
        (self.root / name).write_text(text)

    def run_script(self, *arguments):
        command = [sys.executable, str(self.root / "tools/device_code.py"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    def test_nothing_has_changed_after_a_record(self):
        self.assertEqual(self.run_script(), [])

    def test_device_code_counts_through_other_headers(self):
        self.write("src/device.h", "__device__ float thrice(float x);\n")
        self.assertEqual(self.run_script(), ["src/a.cu"])

    def test_headers_of_the_host_do_not_count(self):
        self.write("src/host.h", "struct Op { int more; };\n")
        self.assertEqual(self.run_script(), [])

    def test_changed_and_new_files(self):
        self.write("src/b.cu", "__global__ void f();\n")
        self.write("src/c.cu", "")
        self.assertEqual(self.run_script(), ["src/b.cu", "src/c.cu"])

    def test_another_compiler_changes_all(self):
        record = self.root / "tools/device_code.txt"
        record.write_text("nvcc V1.0\n" + "".join(record.read_text().splitlines(True)[1:]))
        self.assertEqual(self.run_script(), ["src/a.cu", "src/b.cu"])

    def test_objects_of_full_code(self):
        self.write("src/b.cu", "//\n")
        (self.root / "build").mkdir()
        self.write("build/build.ninja", "".join(
            f"build CMakeFiles/{target}.dir/src/{name}.cu.o: CUDA_COMPILER\n"
            for target in ("temper_lib", "temper_ampere", "temper_device_code_in_full_hopper") for name in "ab"))
        self.assertEqual(self.run_script("--objects", str(self.root / "build")),
                         ["CMakeFiles/temper_ampere.dir/src/b.cu.o",
                          "CMakeFiles/temper_device_code_in_full_hopper.dir/src/b.cu.o"])

    def test_a_changed_file_without_an_object_of_full_code_is_an_error(self):
        self.write("src/c.cu", "")
        (self.root / "build").mkdir()
        # A build that optimizes device code itself has objects of what differs between architectures alone.
        self.write("build/build.ninja", "build CMakeFiles/temper_ampere.dir/src/b.cu.o: CUDA_COMPILER\n")
        self.assertEqual(self.run_script("--objects", str(self.root / "build")), [])
        self.write("build/build.ninja",
                   "build CMakeFiles/temper_device_code_in_full.dir/src/b.cu.o: CUDA_COMPILER\n")
        with self.assertRaises(subprocess.CalledProcessError) as raised:
            self.run_script("--objects", str(self.root / "build"))
        self.assertIn("compiles in full: src/c.cu;", raised.exception.stderr)


if __name__ == "__main__":
    unittest.main()
