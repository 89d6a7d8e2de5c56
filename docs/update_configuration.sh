#!/usr/bin/env bash
# Writes the tables of keys in docs/configuration.md from the program's own declaration.
# Usage: docs/update_configuration.sh [TESSERA]
set -euo pipefail
cd "$(dirname "$0")/.."
tessera=${1:-build/release/tessera}
page=docs/configuration.md
table=$("$tessera" config keys --markdown && echo end)  # keeps the blank lines at its end
table=${table%end}
{
  sed '/^<!-- keys: begin -->$/q' "$page"
  printf '%s' "$table"
  sed -n '/^<!-- keys: end -->$/,$p' "$page"
} > "$page.new"
mv "$page.new" "$page"
