#!/usr/bin/env bash
# Runs the measurements and writes what they print, with commit, date and machine, to docs/measured/. Nothing there is typed.
# Wants an idle machine; all of them take about 80 minutes on two cores.
#
#   benches/measure.sh [PART..]       some parts, all without arguments:
#   keyed_count paired recovery recovery_10m log log_job_log reopen latency unaligned codec flink wire cold_build
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("${@:-keyed_count paired recovery recovery_10m log log_job_log reopen latency unaligned codec flink wire cold_build}")
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }

# measured NAME COMMAND..: what the command prints, below a line that says of what commit and machine it is.
measured() {
  local out="docs/measured/$1.txt"
  shift
  {
    echo "commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), $(nproc) cores, $(uname -sr | cut -d- -f1), $(rustc --version)"
    echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo
  } > "$out.tmp"
  "$@" 2> >(grep -v -e 'the fuse burnt' -e 'panicked at' >&2) >> "$out.tmp" || { rm -f "$out.tmp"; return 1; }
  mv "$out.tmp" "$out"
  cat "$out"
}
bench() { cargo bench --quiet -p cutwater-benches --bench "$@"; }

# Cold builds of the README's two commands: nothing cached but the downloads.
cold_build() {
  local cold
  cold="$(mktemp -d)"
  for what in "build --release --example flights" "test --workspace --no-run"; do
    rm -rf "${cold:?}"/*
    local before=$SECONDS
    # shellcheck disable=SC2086  # the words of a command
    CARGO_TARGET_DIR="$cold" CARGO_INCREMENTAL=0 cargo $what --quiet
    echo "cargo $what: $((SECONDS - before)) s"
  done
  rm -rf "${cold:?}"
}

for part in keyed_count recovery log log_job_log reopen latency unaligned; do
  if wanted "$part"; then measured "$part" bench "$part"; fi
done
if wanted paired; then measured paired bench keyed_count -- --paired 9 --records 150000000; fi
if wanted recovery_10m; then measured recovery_10m bench recovery -- --keys 10000000 --kills 5; fi
if wanted codec; then measured codec cargo run --quiet --release --manifest-path benches/rivals/Cargo.toml -p cutwater-rivals-codec; fi
if wanted flink; then
  measured flink benches/rivals/flink/run || echo "LOUD SKIP: Flink could not be measured (it needs Java, pip and its jars)"
fi
# shellcheck disable=SC2086  # several words: --rounds 5 --megabytes 1000
if wanted wire; then measured wire benches/rivals/wire/run ${WIRE_ARGUMENTS:-}; fi
if wanted cold_build; then measured cold_build cold_build; fi
