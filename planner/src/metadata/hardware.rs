//! A server without a DPU, as it is told about itself by whoever boots it from the network: Tinkerbell's mapping of a Hardware to EC2's
//! tree, and the layout of its disks for the action `rootio`.
//!
//! | the Hardware | what it is told |
//! |---|---|
//! | nobody's | what is written there: `spec.metadata`, `spec.userData`, `spec.vendorData` |
//! | claimed by a machine whose Workflow installs it | what the Secret of its installation says ([`secret`]), by its address where that says so, else its UID and name; nothing of the Hardware's: user data may be an earlier user's |
//! | claimed otherwise, or being deleted | nothing: [`Verdict::Nothing`](crate::netboot::Verdict) |

use super::{BY_ADDRESS, Instance, Interface, META_DATA, PUBLIC_KEYS, SOURCE, USER_DATA, VENDOR_DATA};
use crate::install::Record;
use crate::meta::{annotation, name, uid};
use crate::netboot::{Subject, Verdict, Why, verdict};
use api::labels::{CLAIMED_BY, CLAIMED_BY_NAME};
use api::names;
use api::tinkerbell::Hardware;
use api::tinkerbell::metadata::{Instance as Described, InstanceIp};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// By the keys of the Secret.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The Secret of what a machine that is installed on this server is told, and the UID of that machine.
pub fn secret(hardware: &Hardware) -> Option<(String, &str)> {
    let machine = annotation(&hardware.metadata, CLAIMED_BY)?;
    let record = Record::of(&hardware.metadata)?;
    Some((names::install(machine, record.number), machine))
}

/// Who asks, or why it is told nothing. `files`: of [`secret`], where it is there (installations of before there was one have none).
pub fn instance(subject: &Subject<'_>, files: Option<&Files>) -> Result<Instance, Why> {
    if let Verdict::Nothing(why) = verdict(subject) {
        return Err(why);
    }
    let hardware = subject.hardware;
    Ok(match annotation(&hardware.metadata, CLAIMED_BY) {
        Some(machine) => claimed(hardware, machine, files),
        None => described(hardware, subject),
    })
}

/// What is written for cloud-init on a server's own disk, by NoCloud's names.
pub fn seed(subject: &Subject<'_>, files: Option<&Files>) -> Result<Files, Why> {
    let described = instance(subject, None)?;
    let missing = || Why::NoSeed { hardware: name(&subject.hardware.metadata).to_owned() };
    let mut data = match annotation(&subject.hardware.metadata, CLAIMED_BY) {
        Some(_) => files.ok_or_else(missing)?.clone(),
        None => described.data,
    };
    // The keys are in the meta-data, too.
    data.retain(|key, _| key != PUBLIC_KEYS && key != SOURCE);
    Ok(data)
}

/// What `rootio` reads of the disks' layout, and no more: the rest of `spec.metadata` holds a password's hash.
pub fn layout(subject: &Subject<'_>) -> Result<String, Why> {
    instance(subject, None)?;
    let is_claimed = annotation(&subject.hardware.metadata, CLAIMED_BY).is_some();
    let described = subject.hardware.spec.metadata.as_ref().and_then(|metadata| metadata.instance.as_ref());
    let storage = described.and_then(|instance| instance.storage.clone()).filter(|_| !is_claimed).unwrap_or_default();
    Ok(json!({"metadata": {"instance": {"storage": storage}}}).to_string())
}

fn claimed(hardware: &Hardware, machine: &str, told: Option<&Files>) -> Instance {
    let named = annotation(&hardware.metadata, CLAIMED_BY_NAME).unwrap_or_default();
    let hostname = named.rsplit('/').next().unwrap_or_default().to_owned();
    // What is written to the disk is told to nobody else.
    let told = told.filter(|files| files.get(SOURCE).is_some_and(|source| source == BY_ADDRESS.as_bytes()));
    let data = told.cloned().unwrap_or_else(|| files(machine, &hostname, [None, None, None]));
    Instance { id: machine.to_owned(), hostname, interfaces: interfaces(hardware), data, further: BTreeMap::new() }
}

fn described(hardware: &Hardware, subject: &Subject<'_>) -> Instance {
    let spec = &hardware.spec;
    let described = spec.metadata.as_ref().and_then(|metadata| metadata.instance.clone()).unwrap_or_default();
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let id = given(&described.id).unwrap_or_else(|| uid(&hardware.metadata).to_owned());
    let of_dhcp = subject.interface.dhcp.as_ref().and_then(|dhcp| given(&dhcp.hostname));
    let hostname = given(&described.hostname).or(of_dhcp).unwrap_or_else(|| name(&hardware.metadata).to_owned());
    let keys = (!described.ssh_keys.is_empty()).then(|| described.ssh_keys.join("\n"));
    let user_data = given(&spec.user_data).or_else(|| given(&described.userdata));
    let data = files(&id, &hostname, [user_data, spec.vendor_data.clone(), keys]);
    let further = further(hardware, &described);
    Instance { id, hostname, interfaces: interfaces(hardware), data, further }
}

/// User data, vendor data and public keys. User data is always there: NoCloud wants the file.
fn files(id: &str, hostname: &str, [user, vendor, keys]: [Option<String>; 3]) -> BTreeMap<String, Vec<u8>> {
    let mut described = json!({"instance-id": id, "local-hostname": hostname});
    if let Some(keys) = &keys {
        described["public-keys"] = keys.lines().collect();
    }
    let described = format!("{described:#}\n");
    let all = [
        (META_DATA, Some(described)),
        (USER_DATA, Some(user.unwrap_or_default())),
        (VENDOR_DATA, vendor),
        (PUBLIC_KEYS, keys),
    ];
    all.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into_bytes()))).collect()
}

fn interfaces(hardware: &Hardware) -> Vec<Interface> {
    let of = |interface: &api::tinkerbell::hardware::Interface| {
        let dhcp = interface.dhcp.as_ref()?;
        let address = dhcp.ip.as_ref().and_then(|ip| ip.address.as_ref()?.parse().ok());
        Some(Interface { mac: dhcp.mac.as_ref()?.to_ascii_lowercase(), addresses: address.into_iter().collect() })
    };
    hardware.spec.interfaces.iter().filter_map(of).collect()
}

/// Upstream's leaves beside EC2's own: what is not written is not there.
fn further(hardware: &Hardware, described: &Described) -> BTreeMap<String, String> {
    let facility = hardware.spec.metadata.as_ref().and_then(|metadata| metadata.facility.clone()).unwrap_or_default();
    let system = described.operating_system.clone().unwrap_or_default();
    let address = |v4: bool, public: bool| first(&described.ips, v4, public);
    let leaves = [
        ("plan", facility.plan_slug),
        ("facility", facility.facility_code),
        ("tags", (!described.tags.is_empty()).then(|| described.tags.join("\n"))),
        ("operating-system/slug", system.slug),
        ("operating-system/distro", system.distro),
        ("operating-system/version", system.version),
        ("operating-system/image_tag", system.image_tag),
        ("public-ipv4", address(true, true)),
        ("public-ipv6", address(false, true).or_else(|| address(false, false))),
        // In place of the address that it has by DHCP.
        ("local-ipv4", address(true, false)),
    ];
    let there = leaves.into_iter().filter_map(|(path, text)| Some((path.to_owned(), text?)));
    there.filter(|(_, text)| !text.is_empty()).collect()
}

/// The family is the address's own, whatever is written beside it.
fn first(ips: &[InstanceIp], v4: bool, public: bool) -> Option<String> {
    let is_so = |ip: &&InstanceIp| {
        let address: Option<IpAddr> = ip.address.as_ref().and_then(|address| address.parse().ok());
        address.is_some_and(|address| address.is_ipv4() == v4) && (ip.public == Some(true)) == public
    };
    ips.iter().find(is_so)?.address.clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::answer;
    use crate::netboot::Directory;
    use serde_json::Value;
    use std::sync::Arc;

    const MAC: &str = "52:54:00:00:00:01";

    fn directory(change: impl FnOnce(&mut Value)) -> Directory {
        let mut hardware = json!({
            "metadata": {"name": "rack1-u1", "uid": "uid-1"},
            "spec": {
                "userData": "#cloud-config\n{}\n", "vendorData": "#cloud-config\nvendor: 1\n",
                "interfaces": [{
                    "dhcp": {"mac": "52:54:00:00:00:01", "hostname": "by-dhcp", "ip": {"address": "10.88.0.9"}},
                    "netboot": {"allowPXE": true},
                }],
                "metadata": {
                    "facility": {"facility_code": "ams1", "plan_slug": "m3"},
                    "instance": {
                        "id": "i-1", "hostname": "web-1", "tags": ["a", "b"], "ssh_keys": ["ssh-ed25519 AAAA one"],
                        "crypted_root_password": "$6$secret", "operating_system": {"slug": "debian_12", "distro": "debian"},
                        "ips": [
                            {"address": "2001:db8::9", "family": 6, "public": true},
                            {"address": "192.0.2.9", "family": 4, "public": true},
                            {"address": "10.1.0.9", "family": 4},
                        ],
                        "storage": {"disks": [{"device": "/dev/sda", "wipe_table": true}]},
                    },
                },
            },
        });
        change(&mut hardware);
        Directory::new(vec![Arc::new(serde_json::from_value(hardware).expect("a Hardware"))])
    }

    fn get(directory: &Directory, path: &str) -> Option<String> {
        let subject = directory.by_address("10.88.0.9".parse().expect("an address")).expect("one");
        let instance = instance(&subject, None).expect("it is told about itself");
        answer(&instance, subject.mac, path).map(|text| String::from_utf8(text.into_owned()).expect("text"))
    }

    #[test]
    fn upstreams_tree_and_what_upstream_lacks() {
        let directory = directory(|_| {});
        for (path, content) in [
            ("instance-id", "i-1"),
            ("hostname", "web-1"),
            ("local-hostname", "web-1"),
            ("plan", "m3"),
            ("facility", "ams1"),
            ("tags", "a\nb"),
            ("public-ipv4", "192.0.2.9"),
            ("public-ipv6", "2001:db8::9"),
            ("local-ipv4", "10.1.0.9"),
            ("operating-system/slug", "debian_12"),
            ("operating-system", "distro\nslug"),
            ("public-keys/0/openssh-key", "ssh-ed25519 AAAA one"),
            ("mac", MAC),
        ] {
            for version in ["2009-04-04", "latest"] {
                let path = format!("/{version}/meta-data/{path}");
                assert_eq!(get(&directory, &path).as_deref(), Some(content), "{path}");
            }
        }
        assert_eq!(get(&directory, "/2009-04-04/user-data").as_deref(), Some("#cloud-config\n{}\n"));
        assert_eq!(get(&directory, "/nocloud/vendor-data").as_deref(), Some("#cloud-config\nvendor: 1\n"));
        let described = get(&directory, "/nocloud/meta-data").expect("there");
        let described: Value = serde_json::from_str(&described).expect("JSON is YAML");
        let keys = ["ssh-ed25519 AAAA one"];
        assert_eq!(described, json!({"instance-id": "i-1", "local-hostname": "web-1", "public-keys": keys}));
        assert_eq!(get(&directory, "/latest/meta-data/iqn"), None, "nothing of it is known");
    }

    #[test]
    fn a_hardware_without_metadata_has_a_name_and_an_id() {
        let directory = directory(|hardware| {
            for key in ["metadata", "userData", "vendorData"] {
                hardware["spec"].as_object_mut().expect("an object").remove(key);
            }
        });
        let of = |path: &str| get(&directory, path);
        assert_eq!(of("/latest/meta-data/instance-id").as_deref(), Some("uid-1"));
        assert_eq!(of("/latest/meta-data/hostname").as_deref(), Some("by-dhcp"));
        assert_eq!(of("/latest/meta-data/local-ipv4").as_deref(), Some("10.88.0.9"));
        assert_eq!(of("/latest/user-data").as_deref(), Some(""), "as upstream");
        assert_eq!((of("/latest/meta-data/plan"), of("/latest/meta-data/tags")), (None, None));
    }

    #[test]
    fn a_machine_reads_nothing_that_was_another_users() {
        let claim = |strategy: &str| {
            let annotations = json!({
                "metalplane.io/claimed-by": "machine-uid", "metalplane.io/claimed-by-name": "team-a/bm-03",
                "metalplane.io/boot-strategy": strategy,
            });
            directory(|hardware| hardware["metadata"]["annotations"] = annotations)
        };
        let installed = claim("Workflow");
        for (path, content) in [
            ("/latest/meta-data/instance-id", "machine-uid"),
            ("/latest/meta-data/hostname", "bm-03"),
            ("/latest/user-data", ""),
            ("/nocloud/vendor-data", ""),
        ] {
            assert_eq!(get(&installed, path).as_deref(), Some(content), "{path}");
        }
        assert_eq!(get(&installed, "/latest/meta-data/public-keys"), None);
        let subject = installed.by_mac(MAC).expect("one");
        assert!(!layout(&subject).expect("told").contains("/dev/sda"));
        let on_a_dpu = claim("CloudDisk");
        assert!(matches!(instance(&on_a_dpu.by_mac(MAC).expect("one"), None), Err(Why::Claimed { .. })));
        assert!(layout(&on_a_dpu.by_mac(MAC).expect("one")).is_err());
    }

    /// Of the installation that is on record, by the UID of who has the server now.
    #[test]
    fn an_installed_machine_reads_what_its_installation_was_given() {
        let claimed = |record: Option<&str>| {
            let mut annotations =
                json!({"metalplane.io/claimed-by": "machine-uid", "metalplane.io/boot-strategy": "Workflow"});
            record.iter().for_each(|record| annotations["metalplane.io/install"] = json!(record));
            directory(|hardware| hardware["metadata"]["annotations"] = annotations)
        };
        let of = |directory: &Directory| {
            let subject = directory.by_mac(MAC).expect("one");
            secret(subject.hardware).map(|(name, machine)| (name, machine.to_owned()))
        };
        assert_eq!(of(&claimed(None)), None);
        let (name, machine) = of(&claimed(Some("2/Begun/w"))).expect("one");
        assert_eq!((name, machine.as_str()), (names::install("machine-uid", 2), "machine-uid"));
        assert_eq!(of(&directory(|_| {})), None, "nobody's");
        let own = b"#cloud-config\nown: 1\n".as_slice();
        let directory = claimed(Some("2/Done/w"));
        let subject = directory.by_mac(MAC).expect("one");
        // By its address where the machine says so; onto its disk in any case.
        for (source, by_address) in [("Metadata", own), ("Disk", b"")] {
            let given = [(USER_DATA, own), (SOURCE, source.as_bytes()), (PUBLIC_KEYS, b"a key")];
            let given = Files::from(given.map(|(key, content)| (key.to_owned(), content.to_vec())));
            let told = instance(&subject, Some(&given)).expect("told");
            assert_eq!(answer(&told, MAC, "/latest/user-data").as_deref(), Some(by_address), "{source}");
            assert_eq!(answer(&told, MAC, "/nocloud/vendor-data").as_deref(), Some(b"".as_slice()));
            let written = seed(&subject, Some(&given)).expect("written");
            assert_eq!(written, Files::from([(USER_DATA.to_owned(), own.to_vec())]), "{source}");
        }
        assert!(matches!(seed(&subject, None), Err(Why::NoSeed { .. })));
    }

    #[test]
    fn rootio_reads_the_disks_and_no_password() {
        let directory = directory(|_| {});
        let text = layout(&directory.by_mac(MAC).expect("one")).expect("told");
        let layout: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(layout["metadata"]["instance"]["storage"]["disks"][0]["wipe_table"], true);
        assert!(!text.contains("secret"), "{text}");
    }
}
