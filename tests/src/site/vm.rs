//! A virtual machine in a pod of an ordinary node: QEMU and a guest's image of the node's own files, for the site has no container image
//! with QEMU. The pod's device is bridged to the guest as KubeVirt's bridge binding does it: the guest has the VNic's MAC address, the device
//! another one.

use super::{GuestKind, Site};
use crate::guest::Guest;
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The node's folders that QEMU needs, and where the pod has them.
const FOLDERS: [(&str, &str); 5] =
    [("/usr", "/usr"), ("/usr/bin", "/bin"), ("/usr/sbin", "/sbin"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")];
/// On the node, one folder of each pod; the node's /var/lib is a folder of its own.
const STATE: &str = "/var/lib/vms";
/// IPv6's own addresses are the guest's: neither bridge nor device makes one.
const START: &str = r#"set -e
cd /vm
rm -rf console.log seed
mkdir seed
mac=$(cat /sys/class/net/net1/address)
printf 'instance-id: %s\nlocal-hostname: %s\n' "$NAME" "$NAME" >seed/meta-data
echo '#cloud-config' >seed/user-data
cat >seed/network-config <<END
version: 2
ethernets:
  eth0:
    match:
      macaddress: "$mac"
    dhcp4: true
    accept-ra: true
END
ip link set net1 down
ip link set net1 address 02:00:00:00:00:01
ip link add vm-bridge type bridge mcast_snooping 0
ip tuntap add vm-tap mode tap
for device in net1 vm-bridge vm-tap; do ip link set $device addrgenmode none; done
for device in net1 vm-tap; do ip link set $device master vm-bridge; done
for device in net1 vm-tap vm-bridge; do ip link set $device up; done
exec qemu-system-x86_64 -nodefaults -no-user-config -display none -machine q35 -accel tcg -cpu max $GUEST \
  -chardev socket,id=console,path=console.sock,server=on,wait=off,logfile=console.log -serial chardev:console \
  -drive "file=$DISK,format=raw,if=none,id=root,snapshot=on" -device nvme,drive=root,serial=root,bootindex=0 -drive driver=vvfat,dir=seed,label=CIDATA,if=virtio,read-only=on \
  -netdev tap,id=nic,ifname=vm-tap,script=no,downscript=no -device "virtio-net-pci,netdev=nic,mac=$mac,romfile="
"#;

/// Memory and firmware; without a word of it the firmware is a BIOS, which is faster.
const TINY: &str = "-m 256";
const DEBIAN: &str = "-m 512 -bios OVMF.fd";

pub struct Vm<'a> {
    pub namespace: &'a str,
    /// The pod's, and what the guest calls itself.
    pub name: &'a str,
    /// The pod's.
    pub node: &'a str,
    /// What the pod's net1 is: fields of an entry of `metalplane.io/networks`.
    pub nic: Value,
    pub guest: GuestKind,
}

impl Vm<'_> {
    /// The pod.
    pub async fn manifest(&self) -> Result<String> {
        let (kind, cache) = (self.guest, sandbox::args::cache_folder());
        let disk = tokio::task::spawn_blocking(move || sandbox::guest::image(kind, &cache)).await??;
        let image = disk.parent().context("an image lies in a folder")?;
        let mut nic = self.nic.clone();
        nic["name"] = json!("net1");
        nic["configure"] = json!(false);
        let networks = json!([nic]).to_string();
        let mut volumes =
            vec![json!({"name": "state", "hostPath": {"path": self.state(), "type": "DirectoryOrCreate"}})];
        let mut mounts = vec![json!({"name": "state", "mountPath": "/vm"})];
        let image = image.to_str().context("the cache folder's name is no text")?;
        for (place, (folder, at)) in FOLDERS.into_iter().chain([(image, image)]).enumerate() {
            let name = format!("node-{place}");
            volumes.push(json!({"name": name, "hostPath": {"path": folder, "type": "Directory"}}));
            mounts.push(json!({"name": name, "mountPath": at, "readOnly": true}));
        }
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {"metalplane.io/networks": ""},
                "annotations": {"metalplane.io/networks": networks},
            },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": self.node},
                "volumes": volumes,
                "containers": [{
                    "name": "qemu",
                    "image": sandbox::cluster::images::PAUSE,
                    "imagePullPolicy": "Never",
                    "command": ["/bin/sh", "-c", START],
                    "env": [
                        {"name": "NAME", "value": self.name},
                        {"name": "DISK", "value": disk},
                        {"name": "GUEST", "value": if self.guest == GuestKind::Debian { DEBIAN } else { TINY }},
                        {"name": "TMPDIR", "value": "/vm"},
                        {"name": "PATH", "value": "/usr/sbin:/usr/bin"},
                    ],
                    "securityContext": {"privileged": true},
                    "volumeMounts": mounts,
                }],
            },
        });
        Ok(pod.to_string())
    }

    fn state(&self) -> String {
        format!("{STATE}/{}-{}", self.namespace, self.name)
    }

    /// Its serial console.
    pub fn console(&self, site: &Site) -> Guest {
        Guest::at(site.sandbox.layout().node_dir(self.node).join(self.state().trim_start_matches("/var/")))
    }
}
