#!/usr/bin/env bash
# Installs what Tessera is built with. Safe to run again: what is there is left alone, and nothing is
# downloaded twice.
#
#   launch/setup.sh            Debian packages, and LibTorch for CPUs in deps/libtorch (545 MB of downloads)
#   launch/setup.sh --cuda     LibTorch with CUDA and all that it loads (2.5 GB more)
#   launch/setup.sh --cuda-build  only what compiling and linking for CUDA needs (510 MB of disk, no more
#                              downloads); nvcc, the CUDA headers and NCCL are the system's
#   launch/setup.sh --tools    also what tools/*.py import (numpy, Pillow, scikit-learn), as a Python
#                              environment in deps/tools (70 MB of downloads)
#   launch/setup.sh --peers    also PyTorch and transformers for the live comparisons and benchmarks,
#                              as a Python environment in deps/peers (3 GB of downloads)
#
# As root it installs missing Debian packages; as another user it names them and stops. Wheels come from
# pip's own index settings (pip.conf, PIP_*). TESSERA_TORCH_ROOT names a LibTorch (2.7 or later) that is
# there already, by the folder with include/ and lib/: then none is downloaded.
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Package, and the command that stands for it where it comes from elsewhere (a cluster's modules).
packages=(
  g++:g++ cmake:cmake ninja-build:ninja ccache:ccache pkg-config:pkg-config
  libopenmpi-dev:mpicc openmpi-bin:mpirun
  libyaml-cpp-dev: nlohmann-json3-dev: libcli11-dev: libfmt-dev: libxxhash-dev: libhwy-dev:
  libgtest-dev: libgmock-dev:
  python3-venv: ca-certificates:
  bible-kjv:bible                            # the quickstart's text
  clang-format:clang-format shellcheck:shellcheck  # style checks of tests/run.sh
)

usage() { sed -n '2,17s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

flavour=cpu
cuda_build=false
tools=false
peers=false
for argument in "$@"; do
  case $argument in
    --cuda) flavour=cuda ;;
    --cuda-build) cuda_build=true ;;
    --tools) tools=true ;;
    --peers) peers=true ;;
    -h | --help) usage; exit 0 ;;
    *) usage >&2; die "unknown argument '$argument'" ;;
  esac
done

missing_packages() {
  local entry package command installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${packages[@]%%:*}" 2>/dev/null |
    awk '$1 == "ii" {print $2}' || true)
  for entry in "${packages[@]}"; do
    package=${entry%%:*} command=${entry#*:}
    grep -qxF "$package" <<<"$installed" && continue
    [[ -n $command ]] && command -v "$command" >/dev/null && continue
    say "$package"
  done
}

install_packages() {
  local missing
  if ! command -v dpkg-query >/dev/null; then
    say "No dpkg here: needed are ${packages[*]%%:*} by the names that this system gives them."
    return
  fi
  mapfile -t missing < <(missing_packages)
  if ((${#missing[@]} == 0)); then
    say "Debian packages: all ${#packages[@]} are there"
    return
  fi
  if ((EUID != 0)); then
    say "Missing Debian packages: ${missing[*]}" >&2
    say "Install them with:" >&2
    say "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  say "Debian packages: ${#missing[@]} are missing: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  step "  updating the package lists" apt-get update -qq
  step "  installing" apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# Prints the Python that runs pip: the system's where it has pip, else one of a small environment of ours.
pip_python() {
  if python3 -m pip --version >/dev/null 2>&1; then
    say python3
    return
  fi
  [[ -x $deps/pip/bin/python ]] || python3 -m venv "$deps/pip" >&2
  say "$deps/pip/bin/python"
}

# Fetches the pinned wheels of a requirements file into deps/wheels. Wheels that lie there are not
# fetched again. They are for CPython 3.11, whatever Python runs pip.
fetch_wheels() {
  local python platform platforms=()
  python=$(pip_python)
  for platform in manylinux_2_28 manylinux_2_27 manylinux_2_25 manylinux_2_18 manylinux_2_17 manylinux2014; do
    platforms+=(--platform "${platform}_x86_64")
  done
  mkdir -p "$deps/wheels"
  "$python" -m pip download --disable-pip-version-check --no-cache-dir --require-hashes --no-deps \
    --only-binary=:all: --implementation cp --python-version 3.11 --abi cp311 "${platforms[@]}" \
    --find-links "$deps/wheels" --dest "$deps/wheels" --requirement "$1"
}

# What a finished folder was made from; a folder with another stamp, or none, is made anew.
stamp_of() { cat "$@" | sha256sum | cut -d ' ' -f 1; }

install_libtorch() {
  if [[ -n ${TESSERA_TORCH_ROOT:-} ]]; then
    [[ -d $TESSERA_TORCH_ROOT/include && -e $TESSERA_TORCH_ROOT/lib/libtorch_cpu.so ]] ||
      die "TESSERA_TORCH_ROOT is $TESSERA_TORCH_ROOT; it must hold include/ and lib/libtorch_cpu.so"
    say "LibTorch: $TESSERA_TORCH_ROOT (TESSERA_TORCH_ROOT)"
    return
  fi
  local target=$deps/libtorch requirements=("$root/launch/requirements-libtorch.txt") file stamp have
  [[ $flavour == cpu ]] || requirements+=("$root/launch/requirements-cuda.txt")
  stamp="$flavour $(stamp_of "${requirements[@]}")"
  have=$(cat "$target/.complete" 2>/dev/null || true)
  # The CUDA flavour holds everything that the CPU flavour does.
  if [[ $have == "$stamp" || ($flavour == cpu && $have == cuda*) ]]; then
    say "LibTorch: deps/libtorch (${have%% *})"
    return
  fi
  [[ $(uname -m) == x86_64 ]] || die "the pinned wheels are for x86_64, not $(uname -m); set TESSERA_TORCH_ROOT"
  say "LibTorch ($flavour): fetching the wheels into deps/wheels"
  for file in "${requirements[@]}"; do fetch_wheels "$file"; done
  rm -rf "$target.partial"
  step "  unpacking into deps/libtorch" \
    python3 "$root/launch/unpack_wheels.py" "$flavour" "$target.partial" "$deps/wheels" "${requirements[@]}"
  say "$stamp" >"$target.partial/.complete"
  rm -rf "$target"
  mv "$target.partial" "$target"
}

# The CUDA part of LibTorch without the libraries that it loads: enough to link with. It lies in the
# wheel that the CPU flavour was unpacked from, and is added to the same folder.
install_cuda_build() {
  local lib=${TESSERA_TORCH_ROOT:-$deps/libtorch/torch}/lib list=$root/launch/requirements-libtorch.txt
  if [[ -e $lib/libtorch_cuda.so && -e $lib/libc10_cuda.so ]]; then
    say "LibTorch's CUDA part: $lib"
    return
  fi
  [[ -z ${TESSERA_TORCH_ROOT:-} ]] || die "TESSERA_TORCH_ROOT is $TESSERA_TORCH_ROOT, a LibTorch without CUDA"
  fetch_wheels "$list"
  rm -rf "$deps/libtorch.cuda"
  step "  unpacking LibTorch's CUDA part into deps/libtorch" \
    python3 "$root/launch/unpack_wheels.py" cuda-build "$deps/libtorch.cuda" "$deps/wheels" "$list"
  mv "$deps"/libtorch.cuda/torch/lib/*.so "$lib"
  rm -rf "$deps/libtorch.cuda"
}

# install_environment NAME WHAT DOWNLOADS LIST ...: a Python environment in deps/NAME with the pinned wheels of the
# first list, which takes in the others.
install_environment() {
  local target=$deps/$1 what=$2 downloads=$3 list=$4 stamp
  shift 3
  stamp=$(stamp_of "$@")
  if [[ $(cat "$target/.complete" 2>/dev/null || true) == "$stamp" ]]; then
    say "$what: ${target#"$root/"}"
    return
  fi
  python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' ||
    die "the pinned wheels are for Python 3.11, not $(python3 --version)"
  say "$what: installing in ${target#"$root/"} ($downloads of downloads)"
  rm -rf "$target"
  python3 -m venv "$target"
  "$target/bin/python" -m pip install --disable-pip-version-check --no-cache-dir --require-hashes --no-deps \
    --only-binary=:all: --find-links "$deps/wheels" --requirement "$list"
  say "$stamp" >"$target/.complete"
}

deps=$root/deps
mkdir -p "$deps"
exec 9>"$deps/.lock"
flock --nonblock 9 || { say "another set-up is running; waiting for it"; flock 9; }
install_packages
install_libtorch
if $cuda_build; then install_cuda_build; fi
lists=$root/launch/requirements
if $tools; then
  install_environment tools "numpy, Pillow and scikit-learn" "70 MB" "$lists-tools.txt"
fi
if $peers; then
  install_environment peers "PyTorch and transformers" "3 GB" "$lists-peers.txt" "$lists-tools.txt"
fi
say "Set-up is complete."
