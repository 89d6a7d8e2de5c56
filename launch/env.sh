# Settings of Open MPI, UCX and NCCL for ranks on several machines; sourced by launch/train.sbatch and launch/mpirun.sh,
# or by hand before srun or mpirun. Each says what it does and when to drop it. A variable that is set already stays as it
# is, so every line can be overruled from outside; TESSERA_NETWORK=10.1.0.0/16 names the network instead of it being
# looked for, and TESSERA_NETWORK=none leaves all of that to the libraries.
# shellcheck shell=bash

# default NAME VALUE: sets and exports a variable that is not set.
default() { [[ -n ${!1:-} ]] || export "$1=$2"; }

# The networks, as 'INTERFACE ADDRESS/BITS' lines, over which this machine reaches all of these hosts directly. A bridge of
# containers (docker0, virbr0) has the same address on every machine and leads to none of them: libraries that take it
# wait for ever. Needs ip (iproute2).
shared_networks() {
  local host address interface wanted=0
  local -A reached=()
  for host in "$@"; do
    address=$(getent ahostsv4 "$host" | awk 'NR == 1 {print $1}')
    [[ -n $address ]] || continue
    # This host itself is reached over lo, which says nothing.
    interface=$(ip -4 -o route get "$address" 2>/dev/null | sed -n '/ via /!s/.* dev \([^ ]*\) .*/\1/p')
    [[ $interface != lo ]] || continue
    wanted=$((wanted + 1))
    [[ -z $interface ]] || reached[$interface]=$((${reached[$interface]:-0} + 1))
  done
  for interface in "${!reached[@]}"; do
    ((reached[$interface] == wanted)) || continue
    ip -4 -o address show dev "$interface" | awk '{print $2, $4; exit}'
  done
}

# network_of ADDRESS/BITS: 10.77.0.11/24 -> 10.77.0.0/24
network_of() {
  local bits=${1#*/} a b c d number
  IFS=. read -r a b c d <<<"${1%/*}"
  number=$((((a << 24) + (b << 16) + (c << 8) + d) & (0xffffffff << (32 - bits)) & 0xffffffff))
  printf '%d.%d.%d.%d/%s\n' $((number >> 24)) $((number >> 16 & 255)) $((number >> 8 & 255)) $((number & 255)) "$bits"
}

# interface_in NETWORK: the interface of this machine that has an address in it.
interface_in() {
  local interface address
  while read -r interface address; do
    if [[ $(network_of "${address%/*}/${1#*/}") == "$1" ]]; then printf '%s\n' "$interface"; fi
  done < <(ip -4 -o address show | awk '{print $2, $4}') | head -n 1
}

# choose_network HOST ...: the settings that say over which network ranks meet.
choose_network() {
  local network=${TESSERA_NETWORK:-} interface='' address=''
  [[ $network != none ]] || return 0
  if command -v ip >/dev/null; then
    if [[ -z $network ]]; then
      read -r interface address < <(shared_networks "$@" | sort | head -n 1)
      [[ -z $address ]] || network=$(network_of "$address")
    else
      interface=$(interface_in "$network")
    fi
  fi
  if [[ -n $network ]]; then
    # The network of Open MPI's messages over TCP, and of its daemons. By address, since interfaces may be called
    # differently from node to node. Drop them where messages go over InfiniBand (pml ucx) and any network will do.
    [[ -n ${OMPI_MCA_btl_tcp_if_exclude:-} ]] || default OMPI_MCA_btl_tcp_if_include "$network"
    [[ -n ${OMPI_MCA_oob_tcp_if_exclude:-} ]] || default OMPI_MCA_oob_tcp_if_include "$network"
    # The interface by which NCCL's ranks find each other, and over which they talk where there is no InfiniBand. NCCL
    # knows names only: drop it, and name all of them, where they differ (NCCL_SOCKET_IFNAME=eth0,ens1).
    [[ -z $interface ]] || default NCCL_SOCKET_IFNAME "=$interface"
  else
    # Not found out: at least not what leads nowhere. Drop it where one of these is a real network.
    [[ -n ${OMPI_MCA_btl_tcp_if_include:-} ]] || default OMPI_MCA_btl_tcp_if_exclude 127.0.0.0/8,docker0,virbr0
    [[ -n ${OMPI_MCA_oob_tcp_if_include:-} ]] || default OMPI_MCA_oob_tcp_if_exclude 127.0.0.0/8,docker0,virbr0
    default NCCL_SOCKET_IFNAME ^lo,docker,virbr
  fi
}

# Open MPI takes UCX by itself where it finds InfiniBand, and TCP with shared memory else. Set OMPI_MCA_pml=ucx to insist
# on UCX (a start then fails where it is not there), OMPI_MCA_pml=ob1 to be rid of it.
#
# UCX looks at each variable that begins with UCX_ and warns of those that it does not know, such as a newer version's.
# Drop it to find a misspelt one.
default UCX_WARN_UNUSED_ENV_VARS n
# NCCL says why it failed, which is otherwise a bare 'unhandled system error'. Drop it for silence, INFO for its choices.
default NCCL_DEBUG WARN
# Copies between two processes of a node by one system call. A container without the right to trace processes (Docker's
# and Podman's default) refuses that call to Open MPI 4, which then says so in every rank: there, set
#   OMPI_MCA_btl_vader_single_copy_mechanism=none

if [[ -n ${SLURM_JOB_NODELIST:-} ]]; then
  if [[ ${SLURM_JOB_NUM_NODES:-1} != 1 ]]; then
    mapfile -t network_hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null | head -n 64)
    choose_network "${network_hosts[@]}"
    unset network_hosts
  fi
elif [[ -n ${TESSERA_HOSTS:-} ]]; then
  # shellcheck disable=SC2086  # names with spaces between them
  choose_network $TESSERA_HOSTS
fi
