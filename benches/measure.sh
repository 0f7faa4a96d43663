#!/usr/bin/env bash
# Runs the measurements and writes what they print, with commit, date and machine, to docs/measured/. Nothing there is typed.
# Wants an idle machine; takes about twenty minutes on two cores, most of them for the cold builds.
#
#   benches/measure.sh [keyed_count] [recovery] [log] [latency] [cold_build]       some; all without arguments
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("${@:-keyed_count recovery log latency cold_build}")
wanted() { [[ " ${parts[*]} " == *" $1 "* ]]; }
for bench in keyed_count recovery log latency; do
  wanted "$bench" || continue
  out="docs/measured/$bench.txt"
  {
    echo "commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), $(nproc) cores, $(uname -sr | cut -d- -f1), $(rustc --version)"
    echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
    echo
  } > "$out.tmp"
  cargo bench --quiet -p cutwater-benches --bench "$bench" 2> >(grep -v -e 'the fuse burnt' -e 'panicked at' >&2) >> "$out.tmp"
  mv "$out.tmp" "$out"
  cat "$out"
done

wanted cold_build || exit 0
# Cold builds of the README's two commands: nothing cached but the downloads.
cold="$(mktemp -d)"
trap 'rm -rf "$cold"' EXIT
out="docs/measured/cold_build.txt"
{
  echo "commit $(git rev-parse --short HEAD), $(date -u +%Y-%m-%d), $(nproc) cores, $(uname -sr | cut -d- -f1), $(rustc --version)"
  echo
  for what in "build --release --example flights" "test --workspace --no-run"; do
    rm -rf "${cold:?}"/*
    before=$SECONDS
    # shellcheck disable=SC2086  # the words of a command
    CARGO_TARGET_DIR="$cold" CARGO_INCREMENTAL=0 cargo $what --quiet
    echo "cargo $what: $((SECONDS - before)) s"
  done
} > "$out.tmp"
mv "$out.tmp" "$out"
cat "$out"
