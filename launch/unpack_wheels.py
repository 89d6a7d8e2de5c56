"""Unpacks the C++ part of PyTorch's wheels: headers and shared libraries, as launch/setup.sh lays them out.

usage: unpack_wheels.py cpu|cuda|cuda-build OUT_DIR WHEEL_DIR REQUIREMENTS...

Takes exactly the versions that the requirements files pin, whatever else lies in WHEEL_DIR.
"""

import fnmatch
import pathlib
import re
import sys
import zipfile

# Python's part of the wheels is left out, and in the CPU flavour everything that only CUDA needs:
# libtorch_cpu.so is linked with libcudart and libcupti, and with nothing else of NVIDIA's.
KEEP = {
    "cpu": [
        "torch/include/*",
        "torch/lib/libc10.so*",
        "torch/lib/libtorch_cpu.so*",
        "torch/lib/libgomp*",
        "nvidia/*/lib/libcudart.so*",
        "nvidia/*/lib/libcupti.so*",
        "*.dist-info/*",
    ],
    "cuda-build": ["torch/lib/libc10_cuda.so", "torch/lib/libtorch_cuda.so"],
    "cuda": ["torch/include/*", "torch/lib/*.so*", "nvidia/*/include/*", "nvidia/*/lib/*", "*.dist-info/*"],
}
DROP = ["*/libtorch_python.so*", "*/libshm*", "*.py"]


def pinned_wheels(folder, requirements):
    """The wheel file of each `name==version` line; an error if one is not there."""
    wheels = []
    for path in requirements:
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", path.read_text(), re.MULTILINE):
            found = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
            if not found:
                sys.exit(f"no wheel of {name} {version} in {folder}")
            wheels.append(found[0])
    return wheels


def wanted(name, flavour):
    matches = lambda patterns: any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    return matches(KEEP[flavour]) and not matches(DROP)


def main():
    flavour, out, folder, *requirements = sys.argv[1:]
    for wheel in pinned_wheels(pathlib.Path(folder), [pathlib.Path(r) for r in requirements]):
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if wanted(name, flavour)]
            archive.extractall(out, members)
            print(f"{wheel.name}: {len(members)} files")


if __name__ == "__main__":
    main()
