#!/bin/sh
# Makes a Python environment with pinned packages and prints the folder it is in.
#   tools/python.sh tools/python/sushy-tools.txt    -> ~/.cache/metalplane/python-<key>
# The folder is keyed by the requirements, this script and the Python version; a second call installs nothing.
set -eu
requirements=$1
[ -f "$requirements" ] || { echo "tools/python.sh: no file $requirements" >&2; exit 2; }
# On Debian the part of Python that makes environments is a package of its own.
if ! python3 -c 'import ensurepip' 2>/dev/null; then
    root=
    [ "$(id -u)" -eq 0 ] || root="sudo -n"
    if command -v apt-get >/dev/null && $root true 2>/dev/null; then
        echo "installing python3-venv by apt-get" >&2
        install="$root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends --no-remove"
        $install python3-venv >&2 || { $root apt-get update --quiet >&2 && $install python3-venv >&2; } || true
    fi
    python3 -c 'import ensurepip' 2>/dev/null || {
        echo "tools/python.sh: Python is missing: install python3 (3.10 or newer) and python3-venv" >&2
        exit 1
    }
fi
key=$({ cat "$requirements" "$0"; python3 -c 'import sys; print(sys.version, sys.executable)'; } | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/metalplane
out=$cache/python-$key
if [ ! -e "$out/complete" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/python.lock"
    flock 9
fi
if [ ! -e "$out/complete" ]; then
    echo "installing $(basename "$requirements") for Python (once; kept in $out)" >&2
    # The scripts of an environment name its folder, so it cannot be made elsewhere and moved; the mark says it is whole.
    rm -rf "$out"
    python3 -m venv "$out" >&2
    "$out/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements" >&2
    touch "$out/complete"
fi
echo "$out"
