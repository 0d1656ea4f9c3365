#!/bin/sh
# Builds the programs of one module below tools/, or one of them, and prints the folder they are in.
#   tools/build.sh kubernetes                               -> ~/.cache/metalplane/tools/kubernetes-<key>
#   GOARCH=arm64 tools/build.sh kubernetes csi-attacher     -> ~/.cache/metalplane/tools/kubernetes-csi-attacher-<key>
# The folder is keyed by go.mod, go.sum, this script, the Go version and the architecture; a second call builds nothing.
set -eu
# What Go is told by this machine (its environment, `go env -w`) changes no program: only where modules come from is asked of it. not keyed
# Lines that end so are no part of the key: only what leaves the programs as they are where nothing of it is set may be one. not keyed
unset GOFLAGS GOEXPERIMENT GOFIPS140 GOAMD64 GOARM64 GOOS # not keyed
cat() { command cat "$@" | grep -v ' not keyed$'; } # not keyed
cd "$(dirname "$0")"
module=$1
program=${2:-}
[ -f "$module/go.mod" ] || { echo "tools/build.sh: no module tools/$module" >&2; exit 2; }
command -v go >/dev/null || { echo "tools/build.sh: Go is missing: install Go 1.26 or newer" >&2; exit 1; }
key=$({ cat "$module/go.mod" "$module/go.sum" build.sh; find "$module" -name '*.go' -exec cat {} +; go env GOVERSION GOARCH; } |
    sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/metalplane/tools
out=$cache/$module${program:+-$program}-$key
if [ ! -d "$out" ]; then
    mkdir -p "$cache"
    exec 9>"$cache/$module.lock"
    flock 9
fi
if [ ! -d "$out" ]; then
    echo "building tools/$module with Go (once; kept in $out)" >&2
    part=$(mktemp -d "$cache/.$module.XXXXXX")
    trap 'rm -rf "$part"' EXIT
    cd "$module"
    for name in GOARCH GOPROXY GONOPROXY GOSUMDB GONOSUMDB GOINSECURE GOAUTH GOVCS GOCACHE GOMODCACHE GOTMPDIR; do # not keyed
        export "$name=$(go env "$name")" # not keyed
    done # not keyed
    export GOENV=off # not keyed
    flags="-s -w" tags=""
    kubernetes=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes 2>/dev/null || true)
    if [ -n "$kubernetes" ]; then
        # Without a version of their own the programs run, but kubectl refuses to parse what the server reports.
        version=k8s.io/component-base/version
        minor=${kubernetes#v1.}
        flags="$flags -X $version.gitVersion=$kubernetes -X $version.gitMajor=1 -X $version.gitMinor=${minor%%.*} -X $version.gitTreeState=clean"
    fi
    [ "$module" = containerd ] && tags=no_btrfs,no_zfs,no_devmapper,no_aufs
    [ "$module" = helm ] && flags="$flags -X helm.sh/helm/v4/internal/version.version=$(go list -mod=readonly -m -f '{{.Version}}' helm.sh/helm/v4)"
    packages=tool
    if [ -n "$program" ]; then
        packages=$(go list -mod=readonly -f '{{.ImportPath}}' tool | grep "/$program\$") || { echo "tools/build.sh: tools/$module has no program $program" >&2; exit 2; }
    fi
    CGO_ENABLED=0 GOTOOLCHAIN=local go build -mod=readonly -buildvcs=false -trimpath -tags "$tags" -ldflags "$flags" -o "$part/" "$packages"
    [ -f "$part/server" ] && mv "$part/server" "$part/etcd" # etcd's main package is called server
    snapshotter=$(go list -mod=readonly -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8 2>/dev/null || true)
    if [ -n "$snapshotter" ] && [ -z "$program" ]; then
        # The snapshot API's definitions, for `kubectl apply --server-side -k FOLDER/snapshot-crds`.
        cp -r "$snapshotter/config/crd" "$part/snapshot-crds"
        chmod -R u+w "$part/snapshot-crds"
    fi
    chmod 755 "$part"
    mv "$part" "$out"
    trap - EXIT
fi
echo "$out"
