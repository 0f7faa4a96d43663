#!/usr/bin/env bash
# Has other people's Kafka clients work against the broker: `interop/run.sh NAME|all [--bin PATH] [--against kafka] [--full] [--short] [--keep]`.
#
#   NAME           a directory here with a `run`: sarama, librdkafka, kafka_python, aiokafka, kafkajs, java, security, metrics, rdkafka_rust, differential,
#                  chaos, dump_log
#   --bin          the `cutwater` to run; else $CUTWATER_BIN, else one is built for release
#   --against      `kafka` runs the same against Apache Kafka itself, one KRaft node: a mistake of the script shows there too
#   --full         the long forms (10,000 transactions and the like)
#   --short        leaves out the checks that take long, above all those that kill the broker, which Kafka needs ten seconds for; says which
#   --keep         keeps the broker's data and log, and says where
#
# Each runs against a broker of its own, on a free loopback port, with data of its own. Exit codes: 0 all checks passed, 1 one failed,
# 2 wrong usage, 3 a client's packages can't be had here (with `all`: the others passed).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
all=(sarama librdkafka kafka_python aiokafka kafkajs java security metrics differential rdkafka_rust chaos)
name= keep=
export INTEROP_AGAINST=cutwater INTEROP_FULL=
while [ $# -gt 0 ]; do
  case $1 in
    --bin) export CUTWATER_BIN=$2; shift 2 ;;
    --against) INTEROP_AGAINST=$2; shift 2 ;;
    --full) INTEROP_FULL=1; shift ;;
    --short) export INTEROP_SKIP='kill -9|kill of the broker|deaths of the broker|broker killed|the broker and a member are killed|many:|steps:|with eager'; shift ;;
    --keep) keep=1; shift ;;
    -*) sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) [ -z "$name" ] || { echo "one name at a time, or all" >&2; exit 2; }; name=$1; shift ;;
  esac
done
[ "$name" = all ] || [ -x "$here/$name/run" ] || { sed -n '2,14s/^# \{0,1\}//p' "$0" >&2; exit 2; }

export INTEROP_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/cutwater-interop"
mkdir -p "$INTEROP_CACHE"
if [ "$INTEROP_AGAINST" = kafka ]; then "$here/lib/jars" || exit $?; fi
export INTEROP_KAFKA_CLASSPATH="$INTEROP_CACHE/kafka.classpath"
if [ -z "${CUTWATER_BIN:-}" ] && [ "$name" != dump_log ] && { [ "$INTEROP_AGAINST" = cutwater ] || [ "$name" = differential ]; }; then
  (cd "$here/.." && cargo build --release --quiet -p cutwater-cli)
  export CUTWATER_BIN="${CARGO_TARGET_DIR:-$here/../target}/release/cutwater"
fi

# One client, in its own process group of nothing: the broker ends with it whatever happens.
one() {
  local work code=0 began=$SECONDS
  work=$(mktemp -d)
  printf -- '--- %s against %s\n' "$1" "$INTEROP_AGAINST"
  export INTEROP_STATE="$work" INTEROP_BROKER="python3 $here/lib/broker.py" INTEROP_STORED="python3 $here/lib/stored.py"
  if [ "$1" != differential ] && [ "$1" != chaos ] && [ "$1" != dump_log ]; then
    INTEROP_BOOTSTRAP=$($INTEROP_BROKER start) || return 1
    export INTEROP_BOOTSTRAP
  fi
  trap '$INTEROP_BROKER kill' EXIT
  trap 'exit 130' INT TERM
  "$here/$1/run" || code=$?
  $INTEROP_BROKER stop
  trap - EXIT
  if [ "$code" != 0 ] && [ "$code" != 3 ] && [ -f "$work/broker.log" ]; then
    tail -n 20 "$work/broker.log" | sed 's/^/    broker: /' >&2
  fi
  if [ -n "$keep" ]; then echo "    kept: $work"; else rm -rf "$work"; fi
  case $code in
    0) printf -- '--- %s: passed in %s s\n' "$1" $((SECONDS - began)) ;;
    3) printf -- '--- %s: NOT RUN, its packages cannot be had here\n' "$1" ;;
    *) printf -- '--- %s: FAILED (%s)\n' "$1" "$code"; code=1 ;;
  esac
  return "$code"
}

if [ "$name" != all ]; then one "$name"; exit; fi
# What compares with Kafka, or asks for what Kafka hasn't got, has nothing to do with Kafka alone.
if [ "$INTEROP_AGAINST" = kafka ]; then all=(sarama librdkafka kafka_python aiokafka kafkajs java rdkafka_rust); fi
worst=0
for client in "${all[@]}"; do
  (one "$client") && continue || code=$?
  if [ "$code" != 3 ]; then worst=1; elif [ "$worst" = 0 ]; then worst=3; fi
done
exit "$worst"
