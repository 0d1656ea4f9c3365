//! HookOS and Captain as this service boots them: the script and the arguments of an image, byte for byte, of each architecture, by the
//! routes that their servers ask. The files in `boot/golden` were written from what both read of their kernel's arguments (HookOS's
//! hook-bootkit, Captain's tink-agent-setup and captainos-static-network) and from upstream's order of them; neither system was run.

use super::Boots;
use super::routes::{Reply, route};
use crate::files::Files;
use crate::identity::Identity;
use crate::origin::{self, Origins};
use crate::replicas::Replicas;
use crate::script;
use planner::netboot::Directory;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

const MAC: &str = "52:54:00:00:00:01";
const AGENT: &str = "tink_worker_image=ghcr.io/tinkerbell/tink-agent:v0.25.0";
/// Upstream's, without `vlan_id` before them, which only a server in a VLAN has.
const ORDER: [&str; 13] = [
    "facility",
    "syslog_host",
    "grpc_authority",
    "tinkerbell_tls",
    "tinkerbell_insecure_tls",
    "worker_id",
    "hw_addr",
    "modules",
    "intel_iommu",
    "iommu",
    "initrd",
    "console",
    "console",
];

struct Case {
    arch: &'static str,
    vlan: Option<&'static str>,
    osie: Value,
    script: &'static str,
    arguments: &'static str,
}

fn cases() -> [Case; 4] {
    let hookos = [AGENT, "insecure_registries=10.88.0.1:5000"];
    let captain = |arch: &str| {
        let (kernel, initrd) = (format!("vmlinuz-6.18.16-{arch}"), format!("initramfs-6.18.16-{arch}"));
        json!({"baseURL": "http://files.example/captain", "kernel": kernel, "initrd": initrd, "kernelParams": [AGENT]})
    };
    [
        // Its files are in this service's folder.
        Case {
            arch: "x86_64",
            vlan: None,
            osie: json!({"kernelParams": hookos}),
            script: include_str!("../../golden/hookos-x86_64.ipxe"),
            arguments: include_str!("../../golden/hookos-x86_64.arguments"),
        },
        Case {
            arch: "aarch64",
            vlan: Some("12"),
            osie: json!({"baseURL": "http://files.example/hook/", "kernelParams": hookos}),
            script: include_str!("../../golden/hookos-aarch64.ipxe"),
            arguments: include_str!("../../golden/hookos-aarch64.arguments"),
        },
        Case {
            arch: "x86_64",
            vlan: None,
            osie: captain("x86_64"),
            script: include_str!("../../golden/captain-x86_64.ipxe"),
            arguments: include_str!("../../golden/captain-x86_64.arguments"),
        },
        Case {
            arch: "aarch64",
            vlan: Some("12"),
            osie: captain("aarch64"),
            script: include_str!("../../golden/captain-aarch64.ipxe"),
            arguments: include_str!("../../golden/captain-aarch64.arguments"),
        },
    ]
}

impl Case {
    fn directory(&self) -> Directory {
        let dhcp = json!({"mac": MAC, "arch": self.arch, "vlan_id": self.vlan, "hostname": "s1", "domain_name": "lab.example",
            "name_servers": ["10.88.0.1", "10.88.0.2"], "time_servers": ["10.88.0.3"],
            "ip": {"address": "10.88.0.50", "netmask": "255.255.255.0", "gateway": "10.88.0.1"}});
        let interface = json!({"dhcp": dhcp, "netboot": {"allowPXE": true, "allowWorkflow": true, "osie": self.osie},
            "isoboot": {"sourceISO": "https://files.example/system.iso"}});
        let object = json!({"metadata": {"name": "s1"}, "spec": {
            "interfaces": [interface], "metadata": {"facility": {"facility_code": "lab"}}}});
        Directory::new(vec![Arc::new(serde_json::from_value(object).expect("a Hardware"))])
    }
}

fn server(folder: Option<&Path>) -> Boots {
    let address = Ipv4Addr::new(10, 88, 0, 1);
    let script = script::Config {
        replicas: Replicas::alone(address),
        http_port: 7080,
        grpc_port: 42113,
        syslog: Some(address),
        kernel_arguments: Vec::new(),
        identity: Identity::Open,
    };
    let (eyes, _) = crate::reports::channel(Arc::default());
    let origins = Arc::new(Origins::new(origin::Config::default()));
    let files = Arc::new(Files::read(&[], folder).expect("read"));
    Boots { script, files, origins, strangers: false, eyes }
}

#[test]
fn the_script_and_the_arguments_of_an_image_are_those_of_the_files() {
    for case in cases() {
        let (server, directory) = (server(None), case.directory());
        let Reply::Text(script) = route(&directory, &server, &format!("/ipxe/script/{MAC}/auto.ipxe")) else {
            panic!("no script: {}", case.script)
        };
        assert_eq!(script, case.script);
        let Reply::Remote { url, arguments } = route(&directory, &server, &format!("/iso/{MAC}/system.iso")) else {
            panic!("no image: {}", case.arguments)
        };
        assert_eq!((url.as_str(), arguments + "\n"), ("https://files.example/system.iso", case.arguments.to_owned()));
    }
}

/// The names that the script asks for are those that releases of HookOS have.
#[test]
fn files_in_the_folder_of_the_service_are_fetched_by_the_names_in_the_script() {
    let folder = tempfile::tempdir().expect("a folder");
    let (server, [case, ..]) = (|| server(Some(folder.path())), cases());
    for file in ["vmlinuz-x86_64", "initramfs-x86_64"] {
        let (url, path) = (format!("http://10.88.0.1:7080/osie/{MAC}/{file} "), format!("/osie/{MAC}/{file}"));
        assert!(case.script.replace('\n', " ").contains(&url), "{url}");
        assert!(matches!(route(&case.directory(), &server(), &path), Reply::Refused(..)), "{file} is not there yet");
        std::fs::write(folder.path().join(file), "x").expect("written");
        assert!(matches!(route(&case.directory(), &server(), &path), Reply::File(_)), "{file}");
    }
}

/// What the files say, read as the systems read it: words at spaces, keys and values at the first equals sign, the address at colons.
#[test]
fn each_system_finds_what_it_reads() {
    for case in cases() {
        let kernel = case.script.lines().find_map(|line| line.strip_prefix("kernel ")).expect("a kernel");
        let of_script = kernel.trim_end_matches(" && goto initrd ||").split_once(' ').expect("arguments").1;
        for (arguments, has_initrd) in [(of_script, true), (case.arguments.trim_end(), false)] {
            let all: Vec<_> =
                arguments.split(' ').map(|word| word.split_once('=').expect("a key and a value")).collect();
            let keys: Vec<_> = all.iter().map(|(key, _)| *key).collect();
            let wanted =
                case.vlan.map(|_| "vlan_id").into_iter().chain(ORDER).filter(|key| has_initrd || *key != "initrd");
            let wanted: Vec<_> = wanted.collect();
            assert_eq!(keys[..wanted.len()], wanted, "upstream's order");
            let value = |key: &str| {
                let values: Vec<_> = all.iter().filter(|(k, _)| *k == key).map(|(_, value)| *value).collect();
                assert_eq!(values.len(), 1, "{key}: {arguments}");
                values[0]
            };
            assert_eq!(value("grpc_authority"), "10.88.0.1:42113");
            assert_eq!((value("tinkerbell_tls"), value("tinkerbell_insecure_tls")), ("false", "false"));
            assert_eq!((value("worker_id"), value("hw_addr")), (MAC, MAC));
            assert!(value("tink_worker_image").ends_with("/tink-agent:v0.25.0"), "without it neither starts an agent");
            let ipam: Vec<_> = value("ipam").split(':').collect();
            let vlan = case.vlan.unwrap_or_default();
            assert_eq!(
                ipam,
                [
                    "52-54-00-00-00-01",
                    vlan,
                    "10.88.0.50",
                    "255.255.255.0",
                    "10.88.0.1",
                    "s1",
                    "10.88.0.1,10.88.0.2",
                    "lab.example",
                    "10.88.0.3"
                ]
            );
        }
    }
}
