#!/usr/bin/env bash
# The steps of launch/Containerfile, which also work in any fresh Debian 12 root: installs what Tessera is built with and
# what MPI needs between machines, builds, and removes what running does not need. As root, in the repository.
#
#   launch/container_setup.sh             for CPUs
#   launch/container_setup.sh --cuda      for GPUs; the CUDA toolkit (nvcc) and NCCL's headers must be there
#   launch/container_setup.sh --no-build  only the set-up
set -euo pipefail
# shellcheck source=launch/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

setup=() preset=release build=true
for argument in "$@"; do
  case $argument in
    --cuda) setup=(--cuda) preset=cuda ;;
    --no-build) build=false ;;
    *)
      sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
      die "unknown argument '$argument'"
      ;;
  esac
done

title "Set-up"
launch/setup.sh "${setup[@]}"
# Open MPI's UCX and PMIx come with it; these are what it loads besides: InfiniBand, a remote shell, the routes by which
# launch/env.sh finds the nodes' network.
export DEBIAN_FRONTEND=noninteractive
step "packages for several machines" apt-get install -y -q --no-install-recommends \
  ibverbs-providers libibverbs1 librdmacm1 openssh-client iproute2
ompi_info | grep -q 'MCA pml: ucx' || die "this Open MPI has no UCX"

if $build; then
  title "Build"
  cmake --preset "$preset"
  cmake --build "build/$preset" -j "$(build_jobs)" --target tessera
  "build/$preset/tessera" --version
  # What linking has left, and the wheels that LibTorch was unpacked from.
  find "build/$preset" -name '*.o' -delete
fi
rm -rf deps/wheels "${XDG_CACHE_HOME:-$HOME/.cache}/ccache"
apt-get clean
