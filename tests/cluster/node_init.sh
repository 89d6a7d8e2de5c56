#!/usr/bin/env bash
# Process 1 of a virtual node; cluster.sh starts it in the node's namespaces. It gives the node its host name and its own
# /tmp, /dev/shm and /run/munge, then starts munged and slurmd (slurmctld on ctl). Whoever kills it kills the node.
#   node_init.sh NODE DIR [FOLDER ...]   DIR and these folders are seen by all nodes, also where they lie in /tmp
set -euo pipefail
node=$1 dir=$2
shift
export SLURM_CONF=$dir/etc/slurm.conf
hostname "$node"
mount --bind "$dir/etc/hosts" /etc/hosts

# What all nodes see outlives the node's own /tmp: it is bound aside, and back.
kept=()
mkdir -p /run/virtual-cluster
mount -t tmpfs -o mode=755,size=1m tmpfs /run/virtual-cluster
for folder in "$@"; do
  [[ $folder == /tmp/* ]] || continue
  mkdir "/run/virtual-cluster/${#kept[@]}"
  mount --bind "$folder" "/run/virtual-cluster/${#kept[@]}"
  kept+=("$folder")
done
mount -t tmpfs -o mode=1777,size=1g tmpfs /tmp
for i in "${!kept[@]}"; do
  mkdir -p "${kept[i]}"
  mount --bind "/run/virtual-cluster/$i" "${kept[i]}"
done
mount -t tmpfs -o mode=1777,size=2g tmpfs /dev/shm
mkdir -p /run/munge "$dir/spool/$node"
mount -t tmpfs -o mode=755,size=1m tmpfs /run/munge
chown munge: /run/munge

# A crash leaves files of PMIx behind, which are in the way of a step of the same number: a requeued job's first step.
# KEEP_SPOOL=1 keeps them, as a disk does over a reboot.
[[ -n ${KEEP_SPOOL:-} ]] || rm -rf "$dir/spool/$node"/{stepd.slurm.pmix,pmix}.*
cd /
# A munged for each node: with one for all, a message to several nodes looks like one that was sent again.
setpriv --reuid munge --regid munge --clear-groups munged --key-file="$dir/etc/munge.key" \
  --log-file=/run/munge/munged.log --pid-file=/run/munge/munged.pid --seed-file=/run/munge/munged.seed
daemon=slurmd
[[ $node != ctl ]] || daemon=slurmctld
"$daemon" -D -f "$SLURM_CONF" </dev/null >/dev/null 2>>"$dir/log/$node.stderr" &
echo $! >"$dir/run/$node.daemon"  # its PID inside the node
touch "$dir/run/$node.up"
# Take care of processes that have lost their parents.
sleep infinity &
while :; do
  wait -n || true
  [[ -n $(jobs -p) ]] || sleep 5
done
