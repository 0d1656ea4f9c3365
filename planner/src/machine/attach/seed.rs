//! The small disk that cloud-init in the guest reads (NoCloud), and what is on it. A machine whose guest asks at the metadata address
//! instead has no such disk: its NICs have the same data (`nics.rs`).

use super::disks::{current, leaving};
use super::made::{disk_attachment, owner};
use super::orphans;
use super::seen::{Seen, assigned, detaching, not_exposed};
use crate::about::About;
use crate::machine::draft::Draft;
use crate::machine::named::{SEED_DISK, is_by_disk, vnic_name};
use crate::machine::observed::Observed;
use crate::machine::plan::{Action, Seed};
use crate::machine::situation::Host;
use crate::meta::target;
use crate::metadata::{BY_ADDRESS, META_DATA, NETWORK_CONFIG, PUBLIC_KEYS, SOURCE, USER_DATA};
use crate::network::{cidr, desired, subnets};
use crate::reason::{Blocked, Reason, Waiting};
use crate::vnic::mac;
use api::attachment::{Consumer, DiskAttachmentSpec, DiskSlot};
use api::machine::DiskBus;
use api::network::Ipv6Mode;
use api::{Subnet, names};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

/// Plans the seed; `None`: the host can see it. No volume and no writer, so no hold: granted with epoch 1.
pub(in crate::machine) fn plan(
    o: &Observed,
    host: Host<'_>,
    grant_blocked_by: Option<&Reason>,
    draft: &mut Draft,
) -> Option<Reason> {
    if !is_by_disk(&o.machine) {
        return None;
    }
    if let Some(old) = leaving(o, SEED_DISK) {
        return Some(detaching(About::SeedDisk, &old.spec.dpu_name));
    }
    let Some(attachment) = current(o, SEED_DISK) else {
        draft.act(Action::CreateDiskAttachment(Box::new(disk_attachment(o, host.namespace, SEED_DISK, spec(o, host)))));
        return Some(Waiting::Creating { what: About::SeedAttachment }.into());
    };
    if attachment.spec.grant.is_some() {
        return not_exposed(host, About::SeedDisk, Seen::disk(attachment));
    }
    if let Some(reason) = grant_blocked_by {
        return Some(reason.clone());
    }
    if let Some(reason) = orphans::seed_shown(o, host) {
        return Some(reason);
    }
    match data(o) {
        Ok(data) => {
            let secret_name = attachment.spec.seed_secret_name.clone().unwrap_or_default();
            let seed = Some(Seed { secret_name, data });
            draft.act(Action::GrantDisk { target: target(&attachment.metadata), epoch: 1, seed, holder_pod_uid: None });
            Some(Waiting::Granting { what: About::SeedDisk, message: String::new() }.into())
        }
        Err(reason) => Some(reason),
    }
}

fn spec(o: &Observed, host: Host<'_>) -> DiskAttachmentSpec {
    DiskAttachmentSpec {
        owner: owner(o),
        dpu_name: host.dpu.name().to_owned(),
        disk_name: SEED_DISK.to_owned(),
        consumer: Consumer::Host,
        volume: None,
        seed_secret_name: Some(format!("seed-{}", names::short(o.uid(), 12))),
        eraser: None,
        hold_disk: None,
        import: None,
        bus: DiskBus::NVMe,
        slot: DiskSlot::Seed,
        serial: names::serial(&format!("{}/seed", o.uid())),
        uuid: o.uid().to_owned(),
        read_only: true,
        size: None,
        qos: None,
        grant: None,
        holder_pod_uid: None,
        release: false,
    }
}

fn data(o: &Observed) -> Result<BTreeMap<String, String>, Reason> {
    let mut data = given(o)?;
    if !data.contains_key(NETWORK_CONFIG) {
        data.insert(NETWORK_CONFIG.to_owned(), network_config(o)?);
    }
    Ok(data)
}

/// What the spec says, whatever the machine's NICs are.
fn given(o: &Observed) -> Result<BTreeMap<String, String>, Reason> {
    if let Some((secret, key)) = &o.cloud_init.missing {
        return Err(Blocked::SecretMissing { secret: secret.clone(), key: key.clone() }.into());
    }
    let user = o.cloud_init.user_data.clone().unwrap_or_else(|| "#cloud-config\n{}\n".to_owned());
    let files =
        [(META_DATA, Some(meta_data(o))), (USER_DATA, Some(user)), (NETWORK_CONFIG, o.cloud_init.network_data.clone())];
    Ok(files.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?))).collect())
}

fn with_keys(o: &Observed, mut data: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let keys = o.machine.spec.cloud_init.as_ref().map(|c| c.ssh_public_keys.join("\n")).unwrap_or_default();
    data.insert(PUBLIC_KEYS.to_owned(), keys);
    data
}

/// What the guest is told at the metadata address: what would be on the disk, and the keys once more, one a line.
pub(in crate::machine) fn metadata(o: &Observed) -> Result<BTreeMap<String, String>, Reason> {
    Ok(with_keys(o, data(o)?))
}

/// The same of a machine whose server has no DPU, and boots the network by the NIC with this MAC address. Left to itself, cloud-init would ask
/// on whichever NIC it finds first.
pub(in crate::machine) fn of_server(o: &Observed, mac: &str) -> Result<BTreeMap<String, String>, Reason> {
    let mut data = given(o)?;
    data.entry(NETWORK_CONFIG.to_owned()).or_insert_with(|| {
        let mac = quoted(mac);
        format!("version: 2\nethernets:\n  boot:\n    match:\n      macaddress: {mac}\n    dhcp4: true\n")
    });
    let source = if is_by_disk(&o.machine) { "Disk" } else { BY_ADDRESS };
    data.insert(SOURCE.to_owned(), source.to_owned());
    Ok(with_keys(o, data))
}

/// A machine is one instance for cloud-init, whichever server it is on.
fn meta_data(o: &Observed) -> String {
    let mut text = format!("instance-id: {}\nlocal-hostname: {}\n", o.uid(), o.name());
    let keys = o.machine.spec.cloud_init.as_ref().map(|c| c.ssh_public_keys.as_slice()).unwrap_or_default();
    if !keys.is_empty() {
        text.push_str("public-keys:\n");
    }
    for key in keys {
        let _ = writeln!(text, "  - {}", quoted(key));
    }
    text
}

/// network-config version 2, one block per interface.
fn network_config(o: &Observed) -> Result<String, Reason> {
    let mut text = "version: 2\n".to_owned();
    if !o.machine.spec.interfaces.is_empty() {
        text.push_str("ethernets:\n");
    }
    for interface in &o.machine.spec.interfaces {
        let vnic_name = vnic_name(&o.machine, interface);
        let waiting = || Waiting::Creating { what: About::VNic(vnic_name.clone()) };
        let vnic = o.vnics.get(&vnic_name).ok_or_else(waiting)?;
        let subnet_name = &vnic.spec.subnet;
        let missing = || Blocked::SubnetMissing { subnet: subnet_name.clone() };
        let subnet = o.subnets.get(subnet_name).ok_or_else(missing)?;
        let addresses = assigned(vnic)?;
        let (name, mac) = (&interface.name, quoted(&mac(vnic)));
        let _ = write!(text, "  {name}:\n    match:\n      macaddress: {mac}\n    set-name: {name}\n");
        if desired::dhcp(subnet) {
            by_dhcp(&mut text, subnet, addresses);
            continue;
        }
        text.push_str("    addresses:\n");
        for address in addresses {
            let length = cidr::family_of(&subnet.spec, address).map_or(0, |family| family.network.prefix_len());
            let _ = writeln!(text, "      - {}", quoted(&format!("{address}/{length}")));
        }
        let has = |v4: bool| addresses.iter().any(|address| address.contains(':') != v4);
        let gateways: Vec<IpAddr> =
            subnets::gateways(subnet)?.into_iter().filter(|gateway| has(gateway.is_ipv4())).collect();
        if !gateways.is_empty() {
            text.push_str("    routes:\n");
        }
        for gateway in gateways {
            let (all, gateway) = (if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" }, gateway.to_string());
            let _ = write!(text, "      - to: {}\n        via: {}\n", quoted(all), quoted(&gateway));
        }
    }
    Ok(text)
}

/// What OVN answers is the VNic's addresses and no others.
fn by_dhcp(text: &mut String, subnet: &Subnet, addresses: &[String]) {
    let v6 = addresses.iter().any(|address| address.contains(':'));
    let slaac = subnet.spec.ipv6_mode == Some(Ipv6Mode::SLAAC);
    let is = |is: bool| if is { "true" } else { "false" };
    let v4 = addresses.iter().any(|address| !address.contains(':'));
    let _ = write!(text, "    dhcp4: {}\n    dhcp6: {}\n", is(v4), is(v6 && !slaac));
    let _ =
        writeln!(text, "    accept-ra: {}", is(v6 && (subnet.spec.routed || subnet.spec.provider_network.is_some())));
}

/// A JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
