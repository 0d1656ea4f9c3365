#!/bin/sh
# Writes the go.mod of every module below tools/: which outside programs we build, and at which version.
# Run it by hand to move a version; its results (go.mod, go.sum) are what is committed and built.
# k8s.io/kubernetes requires its staging repositories at v0.0.0 and replaces them by local folders, so a module that
# builds it has to repeat those replacements with the published versions. Needs go and jq.
set -eu
cd "$(dirname "$0")"

kubernetes=1.37.1
kubernetes_of_provisioner=1.36.4 # the newest provisioner does not compile against newer informers

# write FOLDER KUBERNETES-VERSION|- 'TOOL-PACKAGE…' 'MODULE@VERSION…'
write() {
    folder=$1 version=$2 tools=$3 modules=$4
    mkdir -p "$folder"
    (
        cd "$folder"
        rm -f go.mod go.sum
        if [ "$version" = - ]; then
            printf 'module metalplane.io/tools/%s\n\ngo 1.26.0\n' "$folder" >go.mod
        else
            source=$(cd / && go mod download -json "k8s.io/kubernetes@v$version" | jq -r .GoMod)
            go_version=$(go mod edit -json "$source" | jq -r .Go)
            {
                printf 'module metalplane.io/tools/%s\n\ngo %s\n\ngodebug default=go%s\n\nreplace (\n' \
                    "$folder" "$go_version" "${go_version%.*}"
                go mod edit -json "$source" | jq -r --arg s "v0.${version#1.}" \
                    '.Replace[] | select(.New.Path|startswith("./staging/")) | "\t\(.Old.Path) => \(.Old.Path) \($s)"'
                echo ')'
            } >go.mod
            go mod edit -require="k8s.io/kubernetes@v$version"
        fi
        for module in $modules; do go mod edit -require="$module"; done
        for tool in $tools; do go mod edit -tool="$tool"; done
        GOFLAGS=-mod=mod go mod tidy
    )
}

k=k8s.io/kubernetes/cmd
csi=github.com/kubernetes-csi
cni=github.com/containernetworking
write kubernetes "$kubernetes" \
    "$k/kube-apiserver $k/kube-controller-manager $k/kube-scheduler $k/kubelet $k/kube-proxy $k/kubectl
     go.etcd.io/etcd/server/v3 $csi/csi-test/v5/cmd/csi-sanity
     $csi/external-attacher/v4/cmd/csi-attacher $csi/external-resizer/v2/cmd/csi-resizer
     $csi/external-snapshotter/v8/cmd/csi-snapshotter $csi/external-snapshotter/v8/cmd/snapshot-controller
     $cni/plugins/plugins/main/ptp $cni/plugins/plugins/main/loopback $cni/plugins/plugins/ipam/host-local" \
    "go.etcd.io/etcd/server/v3@v3.7.3 $csi/csi-test/v5@v5.6.0 $csi/external-attacher/v4@v4.13.0 $csi/external-resizer/v2@v2.3.0
     $csi/external-snapshotter/v8@v8.7.0 $csi/external-snapshotter/client/v8@v8.7.0 $cni/cni@v1.3.1 $cni/plugins@v1.9.1"
write provisioner "$kubernetes_of_provisioner" \
    "$csi/external-provisioner/v6/cmd/csi-provisioner" "$csi/external-provisioner/v6@v6.3.0"
# The mock CSI driver of Kubernetes' storage tests; main.go makes a program of it.
write mock-driver "$kubernetes" metalplane.io/tools/mock-driver ""
c=github.com/containerd/containerd/v2
write containerd - "$c/cmd/containerd $c/cmd/containerd-shim-runc-v2 $c/cmd/ctr" "$c@v2.2.9"
write cnitool - "$cni/cni/cnitool" "$cni/cni@v1.3.1"
write helm - "helm.sh/helm/v4/cmd/helm" "helm.sh/helm/v4@v4.3.1"
# Upstream's kinds as Go types, and what makes CRDs of them; types.go holds the imports.
write tinkerbell - "sigs.k8s.io/controller-tools/cmd/controller-gen" \
    "sigs.k8s.io/controller-tools@v0.23.0 github.com/tinkerbell/tinkerbell/api@v0.25.0"
# A worker of the older generation that only says that it ran its actions.
write tink - "github.com/tinkerbell/tink/cmd/virtual-worker" "github.com/tinkerbell/tink@v0.12.2"
# Go's templates with sprig, which Tinkerbell renders by; main.go makes a program of them.
write gotemplate - metalplane.io/tools/gotemplate "github.com/Masterminds/sprig/v3@v3.3.0 sigs.k8s.io/yaml@v1.6.0"
