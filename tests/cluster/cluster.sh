#!/usr/bin/env bash
# A real Slurm cluster of virtual nodes inside this machine (Debian 12, root). A node is a set of namespaces: network,
# host name, mounts, IPC and processes. The machine's own network is not touched.
#
#   cluster.sh missing                 names what is not there: root, or the Debian packages; nothing if all is
#   cluster.sh up SLOTS                slots of three nodes each (n1 n2 n3, n4 n5 n6, ...), a controller, ready for jobs
#   cluster.sh user COMMAND ...          runs a command on the controller as the user of the jobs
#   cluster.sh user_on NODE COMMAND    the same on a node
#   cluster.sh admin COMMAND ...       the same as root
#   cluster.sh on NODE COMMAND ...     runs a command inside a node as root
#   cluster.sh cut NODE | join NODE    takes the node's link down or up; its processes live on
#   cluster.sh crash NODE              power failure: the link goes first, so that no peer hears of it
#   cluster.sh deaf NODE               kills slurmd of a node, and nothing else
#   cluster.sh boot NODE               starts a node again (KEEP_SPOOL=1: with the files that it had)
#   cluster.sh limit RATE | unlimit    caps every node's link, both ways: limit 1gbit
#   cluster.sh down                    ends everything that `up` has started
#
# Each slot S has partitions of its own: bS; gS, where a preempted job has a minute of grace; uS, which preempts both.
# So tests run side by side. CLUSTER_DIR (default /var/tmp/tessera-cluster) is what all nodes share, with the folders in
# CLUSTER_FOLDERS; the rest of /tmp is a node's own. CLUSTER_USER (default tessera-test, made by `up`) owns the jobs.
# CLUSTER_CPUS (default 64) is how many cores a node claims to have.
set -euo pipefail
dir=${CLUSTER_DIR:-/var/tmp/tessera-cluster}
user=${CLUSTER_USER:-tessera-test}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export SLURM_CONF=$dir/etc/slurm.conf
readonly nodes_of_a_slot=3

die() {
  printf 'cluster.sh: error: %s\n' "$*" >&2
  exit 1
}
net_of() { printf 'tessera-%s' "$1"; }
in_net() {
  local node=$1
  shift
  nsenter --net="/var/run/netns/$(net_of "$node")" "$@"
}
address_of() { if [[ $1 == ctl ]]; then echo 10.77.0.1; else echo "10.77.0.$((10 + ${1#n}))"; fi; }
alive() { kill -0 "$1" 2>/dev/null; }
# The PID, as seen from outside, of a node's process 1.
init_of() { cat "$dir/run/$1.init" 2>/dev/null || die "no node '$1' is up"; }
enter() {
  local init
  init=$(init_of "$1")
  shift
  nsenter -t "$init" -m -u -i -n -p "$@"
}
as_user() {
  local node=$1
  shift
  enter "$node" setpriv --reuid "$user" --regid "$user" --init-groups \
    env HOME="$dir/home/$user" USER="$user" LOGNAME="$user" "$@"
}
nodes() { cat "$dir/etc/nodes"; }

missing() {
  local package
  ((EUID == 0)) || echo "root"
  for package in slurmctld slurmd:slurmd slurm-client:srun munge:munged openmpi-bin:mpirun openssh-server:sshd iproute2:ip; do
    command -v "${package#*:}" >/dev/null || echo "${package%:*}"
  done
  [[ -n $(find /usr/lib -name 'mpi_pmix*.so' 2>/dev/null) ]] || echo "Slurm's plug-in for PMIx"
}

write_conf() {
  local slots=$1 count=$(($1 * nodes_of_a_slot)) node slot first last
  mkdir -p "$dir"/{etc,log,run,spool,state,home,work}
  chmod 755 "$dir" "$dir"/*
  seq -f 'n%g' "$count" >"$dir/etc/nodes"
  {
    echo "127.0.0.1 localhost"
    for node in ctl $(nodes); do echo "$(address_of "$node") $node"; done
  } >"$dir/etc/hosts"
  [[ -e $dir/etc/munge.key ]] || dd if=/dev/urandom of="$dir/etc/munge.key" bs=1 count=1024 status=none
  {
    # cred_expire is also how long a requeued job waits. With less than Slurm's 120 s, signals of an old step reach the
    # new one, which has the same number.
    cat <<CONF
ClusterName=virtual
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=cred_expire=120
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=5,batch_sched_delay=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
ReturnToService=2
KillWait=30
SlurmdTimeout=40
SlurmctldTimeout=60
MinJobAge=86400
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
MessageTimeout=20
CONF
    for node in $(nodes); do
      # The weight orders them: jobs take the first two of a slot where they can.
      echo "NodeName=$node NodeAddr=$(address_of "$node") CPUs=${CLUSTER_CPUS:-64} RealMemory=64000 Weight=${node#n} State=UNKNOWN"
    done
    for ((slot = 1; slot <= slots; slot++)); do
      last=$((slot * nodes_of_a_slot)) first=$((last - nodes_of_a_slot + 1))
      echo "PartitionName=b$slot Nodes=n[$first-$last] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE"
      echo "PartitionName=g$slot Nodes=n[$first-$last] MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=60"
      echo "PartitionName=u$slot Nodes=n[$first-$last] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF"
    done
  } >"$SLURM_CONF"
}

make_net() {
  local node=$1 net
  net=$(net_of "$node")
  [[ ! -e /var/run/netns/$net ]] || return 0
  ip netns add "$net"
  in_net "$node" ip link set lo up
  if [[ $node == ctl ]]; then
    in_net ctl ip link add br0 type bridge
    in_net ctl ip address add 10.77.0.1/24 dev br0
    in_net ctl ip link set br0 up
  else
    in_net ctl ip link add "v-$node" type veth peer name eth0 netns "$net"
    in_net ctl ip link set "v-$node" master br0 up
    in_net "$node" ip address add "$(address_of "$node")/24" dev eth0
    in_net "$node" ip link set eth0 up
  fi
}
link() { in_net "$1" ip link set eth0 "$2"; }

# `ip netns exec` would mount another /sys, which hides the control groups from slurmd; so nsenter.
boot() {
  local node=$1 outer
  if [[ -e $dir/run/$node.init ]] && alive "$(init_of "$node")"; then return; fi
  rm -f "$dir/run/$node.up"
  # shellcheck disable=SC2086  # folders without spaces
  setsid nsenter --net="/var/run/netns/$(net_of "$node")" unshare --mount --uts --ipc --pid --fork --kill-child \
    --mount-proc --propagation private bash "$here/node_init.sh" "$node" "$dir" ${CLUSTER_FOLDERS:-} \
    </dev/null >>"$dir/log/$node.init.log" 2>&1 9>&- &
  outer=$!
  for _ in $(seq 200); do
    if [[ -e $dir/run/$node.up ]]; then
      pgrep -P "$outer" >"$dir/run/$node.init"
      return
    fi
    sleep 0.1
  done
  die "node $node did not come up; see $dir/log/$node.init.log"
}

kill_node() {
  local init
  [[ -e $dir/run/$1.init ]] || return 0
  init=$(init_of "$1")
  kill -KILL "$init" 2>/dev/null || true
  for _ in $(seq 50); do
    alive "$init" || break
    sleep 0.1
  done
  rm -f "$dir/run/$1".{init,up}
}

up() {
  local slots=$1 node idle
  [[ -z $(missing) ]] || die "not there: $(missing | paste -sd ' ')"
  [[ ! -e $dir/run/ctl.init ]] || ! alive "$(init_of ctl)" || die "it is up already"
  rm -rf "$dir/state" "$dir/spool" "$dir/log"
  write_conf "$slots"
  chown munge: "$dir/etc/munge.key"
  chmod 400 "$dir/etc/munge.key"
  id "$user" >/dev/null 2>&1 || useradd --system --no-create-home --home-dir "$dir/home/$user" --shell /bin/bash \
    --password '*' "$user"  # by key, since ! would lock it
  mkdir -p "$dir/home/$user"
  chown "$user": "$dir/home/$user" "$dir/work"
  for node in ctl $(nodes); do make_net "$node"; done
  boot ctl
  for node in $(nodes); do boot "$node"; done
  for _ in $(seq 120); do
    idle=$(enter ctl sinfo -h -N -o '%N %t' 2>/dev/null | sort -u | grep -c ' idle$' || true)
    if ((idle == slots * nodes_of_a_slot)); then return; fi
    sleep 0.5
  done
  die "of $((slots * nodes_of_a_slot)) nodes only $idle are ready; see $dir/log"
}

down() {
  local node
  for node in $(nodes 2>/dev/null) ctl; do
    kill_node "$node"
    [[ ! -e /var/run/netns/$(net_of "$node") ]] || ip netns delete "$(net_of "$node")"
  done
}

limit() {
  local node
  for node in $(nodes); do
    if [[ -n $1 ]]; then
      in_net "$node" tc qdisc replace dev eth0 root tbf rate "$1" burst 256k latency 50ms
      in_net ctl tc qdisc replace dev "v-$node" root tbf rate "$1" burst 256k latency 50ms
    else
      in_net "$node" tc qdisc del dev eth0 root 2>/dev/null || true
      in_net ctl tc qdisc del dev "v-$node" root 2>/dev/null || true
    fi
  done
}

command=${1:-}
(($# == 0)) || shift
case $command in
  missing) missing ;;
  up) up "$@" ;;
  user) as_user ctl "$@" ;;
  user_on) as_user "$@" ;;
  admin) enter ctl "$@" ;;
  on) enter "$@" ;;
  cut) link "$1" down ;;
  join) link "$1" up ;;
  crash)
    link "$1" down
    kill_node "$1"
    ;;
  deaf) enter "$1" kill -KILL "$(<"$dir/run/$1.daemon")" ;;
  boot)
    link "$1" up
    boot "$1"
    ;;
  limit) limit "$1" ;;
  unlimit) limit '' ;;
  down) down ;;
  *)
    sed -n '2,24s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
