#!/usr/bin/env bash
# A Ray cluster over the nodes of a Slurm job, and on its first node a command that ends the job when it ends:
#
#   sbatch docker/slurm.sh                                   # a Prefect worker that waits for runs of r1-nvidia
#   sbatch --nodes=4 docker/slurm.sh rl-post run r1 steps=100
#
# Environment: RL_POST_HOME, a directory that all nodes mount; RL_POST_IMAGE, an image, where Slurm has the container
# plugin pyxis (else the environment that the job is submitted from is used); RL_POST_POOL, the worker's pool;
# PREFECT_API_URL and MLFLOW_TRACKING_URI, which every node must reach.
#SBATCH --job-name=rl-post
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
set -euo pipefail
: "${RL_POST_HOME:?a directory that all nodes mount}"
export RL_POST_HOME

(($#)) || set -- prefect worker start --pool "${RL_POST_POOL:-rl-post-nvidia}" --type process

# Who knows the token may use the cluster. It is in a file: a command line can be read by everyone on a node.
RAY_AUTH_TOKEN_PATH="$RL_POST_HOME/.ray-token-$SLURM_JOB_ID"
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' > "$RAY_AUTH_TOKEN_PATH")

read -r head < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ip=$(getent ahostsv4 "$head" | awk 'NR == 1 { print $1 }')
address="$ip:$((20000 + SLURM_JOB_ID % 10000))"
container=()
if [[ -n "${RL_POST_IMAGE:-}" ]]; then
    container=(--container-image="$RL_POST_IMAGE" --container-mounts="$RL_POST_HOME:$RL_POST_HOME")
fi

# Starts Ray on every node, waits for all of them, runs the command on the head, and stops Ray when it ends.
srun "${container[@]}" ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" \
    -- env RAY_ADDRESS="$address" "$@"
