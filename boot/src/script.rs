//! The script by which iPXE boots the system that runs Workflows: upstream's kernel arguments, in upstream's order, then
//! `ipam`, by which that system has its address without asking, and what is configured.

use crate::identity::Identity;
use crate::replicas::Replicas;
use planner::netboot::Subject;
use std::net::Ipv4Addr;

/// Of a Hardware's interface: what a person can shorten of a kernel's arguments.
pub(crate) const KERNEL_PARAMS: &str = "netboot.osie.kernelParams";

#[derive(Debug, Clone)]
pub struct Config {
    pub replicas: Replicas,
    pub http_port: u16,
    pub grpc_port: u16,
    pub syslog: Option<Ipv4Addr>,
    pub kernel_arguments: Vec<String>,
    /// How the agent says who it is.
    pub identity: Identity,
}

/// How often a file is tried.
const TRIES: u32 = 5;

/// Back to the firmware, which goes on with what comes next in its order. `why` is for who reads the console.
pub fn local_disk(why: &str) -> String {
    let why: String = why.chars().filter(|c| c.is_alphanumeric() || " '-.,;:".contains(*c)).collect();
    format!("#!ipxe\necho {why}\nexit 1\n")
}

/// `Err`: a field of the Hardware that cannot stand in a script.
pub fn ipxe(config: &Config, subject: &Subject<'_>) -> Result<String, String> {
    let netboot = subject.interface.netboot.clone().unwrap_or_default();
    let own = netboot.ipxe.unwrap_or_default();
    let set = |text: Option<String>| text.filter(|text| !text.is_empty());
    if let Some(url) = set(own.url) {
        return Ok(format!("#!ipxe\nchain --autofree {}\n", word("netboot.ipxe.url", &url)?));
    }
    if let Some(contents) = set(own.contents) {
        return Ok(if contents.starts_with("#!ipxe") { contents } else { format!("#!ipxe\n{contents}\n") });
    }
    let osie = netboot.osie.unwrap_or_default();
    let arch = subject.interface.dhcp.as_ref().and_then(|dhcp| set(dhcp.arch.clone()));
    let arch = word("dhcp.arch", &arch.unwrap_or_else(|| "x86_64".to_owned()))?;
    let (address, http_port) = (config.replicas.own, config.http_port);
    let base = set(osie.base_url).unwrap_or_else(|| format!("http://{address}:{http_port}/osie/{}", subject.mac));
    let base = word("netboot.osie.baseURL", base.trim_end_matches('/'))?;
    let kernel = word("netboot.osie.kernel", &set(osie.kernel).unwrap_or_else(|| format!("vmlinuz-{arch}")))?;
    let initrd = word("netboot.osie.initrd", &set(osie.initrd).unwrap_or_else(|| format!("initramfs-{arch}")))?;
    let arguments = arguments(config, subject, Some(&initrd), &osie.kernel_params)?.join(" ");
    Ok(format!(
        "#!ipxe\n\
         echo Metalplane installs this server\n\
         set tries:int32 0\n\
         :kernel\n\
         kernel {base}/{kernel} {arguments} && goto initrd ||\n\
         inc tries\n\
         iseq ${{tries}} {TRIES} && goto failed ||\n\
         sleep 2\n\
         goto kernel\n\
         :initrd\n\
         initrd --name {initrd} {base}/{initrd} && goto boot ||\n\
         inc tries\n\
         iseq ${{tries}} {TRIES} && goto failed ||\n\
         sleep 2\n\
         goto initrd\n\
         :boot\n\
         boot\n\
         :failed\n\
         echo The kernel or the initial RAM disk cannot be fetched from {base}\n\
         sleep 10\n\
         exit 1\n"
    ))
}

/// The kernel's arguments in an image that firmware boots as a whole: its initial RAM disk is in it.
pub fn of_image(config: &Config, subject: &Subject<'_>) -> Result<String, String> {
    let osie = subject.interface.netboot.as_ref().and_then(|netboot| netboot.osie.clone()).unwrap_or_default();
    Ok(arguments(config, subject, None, &osie.kernel_params)?.join(" "))
}

fn arguments(
    config: &Config,
    subject: &Subject<'_>,
    initrd: Option<&str>,
    own: &[String],
) -> Result<Vec<String>, String> {
    let dhcp = subject.interface.dhcp.clone().unwrap_or_default();
    let facility = subject.hardware.spec.metadata.as_ref().and_then(|metadata| metadata.facility.as_ref());
    let facility = facility.and_then(|facility| facility.facility_code.clone()).unwrap_or_default();
    let mut all = Vec::new();
    if let Some(vlan) = dhcp.vlan_id.as_deref().filter(|vlan| !vlan.is_empty()) {
        all.push(format!("vlan_id={}", word("dhcp.vlan_id", vlan)?));
    }
    let (address, grpc_port) = (config.replicas.own, config.grpc_port);
    all.push(format!("facility={}", word("metadata.facility.facility_code", &facility)?));
    all.push(format!("syslog_host={}", config.syslog.map(|address| address.to_string()).unwrap_or_default()));
    all.push(format!("grpc_authority={address}:{grpc_port}"));
    let pin = config.identity.pin(subject.hardware);
    all.push(format!("tinkerbell_tls={}", pin.is_some()));
    all.push("tinkerbell_insecure_tls=false".to_owned());
    all.extend(pin.map(|pin| format!("metalplane_grpc_pin={pin}")));
    let others: Vec<_> = config.replicas.others().map(|other| format!("{other}:{grpc_port}")).collect();
    all.extend(
        Some(others.join(","))
            .filter(|others| !others.is_empty())
            .map(|others| format!("metalplane_grpc_fallback={others}")),
    );
    let worker = config.identity.worker_id(subject, runtime::clock::now());
    all.push(format!("worker_id={}", word("agentID", &worker)?));
    all.push(format!("hw_addr={}", subject.mac));
    all.push("modules=loop,squashfs,sd-mod,usb-storage".to_owned());
    all.push("intel_iommu=on".to_owned());
    all.push("iommu=pt".to_owned());
    all.extend(initrd.map(|initrd| format!("initrd={initrd}")));
    // Linux takes the first serial port of its arguments, and none if that is absent: a second one would be ignored.
    if !config.kernel_arguments.iter().chain(own).any(|argument| argument.starts_with("console=")) {
        all.push("console=tty0".to_owned());
        all.push("console=ttyS1,115200".to_owned());
    }
    all.push(ipam(subject)?);
    all.extend(config.kernel_arguments.iter().cloned());
    for argument in own {
        all.push(word(KERNEL_PARAMS, argument)?);
    }
    Ok(all)
}

/// Upstream's form: mac:vlan:address:netmask:gateway:hostname:nameservers:search:timeservers, the MAC with dashes.
fn ipam(subject: &Subject<'_>) -> Result<String, String> {
    let dhcp = subject.interface.dhcp.clone().unwrap_or_default();
    let ip = dhcp.ip.unwrap_or_default();
    let text = |text: Option<String>| text.unwrap_or_default();
    let fields = [
        subject.mac.replace(':', "-"),
        text(dhcp.vlan_id),
        text(ip.address),
        text(ip.netmask),
        text(ip.gateway),
        text(dhcp.hostname),
        dhcp.name_servers.join(","),
        text(dhcp.domain_name),
        dhcp.time_servers.join(","),
    ];
    word("dhcp", &format!("ipam={}", fields.join(":")))
}

/// One word of a script: nothing that iPXE would take for the end of a command, or for a variable.
fn word(field: &str, text: &str) -> Result<String, String> {
    let breaks = |c: char| c.is_whitespace() || c.is_control();
    if text.contains(breaks) || text.contains("${") || text == "||" || text == "&&" {
        return Err(format!("{field}: a blank, a line break, ${{, || and && cannot stand in a boot script"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::tinkerbell::Hardware;
    use planner::netboot::Directory;
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn made(interface: Value) -> Result<String, String> {
        made_of(interface, &[Ipv4Addr::new(10, 88, 0, 1)])
    }

    fn made_of(interface: Value, addresses: &[Ipv4Addr]) -> Result<String, String> {
        let mut interface = interface;
        interface["dhcp"]["mac"] = json!("52:54:00:00:00:01");
        let object = json!({"metadata": {"name": "s1"}, "spec": {
            "interfaces": [interface], "metadata": {"facility": {"facility_code": "lab"}}}});
        let hardware: Hardware = serde_json::from_value(object).expect("a Hardware");
        let directory = Directory::new(vec![Arc::new(hardware)]);
        let config = Config {
            replicas: Replicas::find(addresses.to_vec(), Some(Ipv4Addr::new(10, 88, 0, 1))).expect("replicas"),
            http_port: 7080,
            grpc_port: 42113,
            syslog: None,
            kernel_arguments: vec!["panic=30".to_owned()],
            identity: Identity::Open,
        };
        ipxe(&config, &directory.by_mac("52:54:00:00:00:01").expect("one"))
    }

    #[test]
    fn arguments_are_upstreams_in_their_order() {
        let script = made(json!({
            "dhcp": {"vlan_id": "12", "hostname": "s1", "name_servers": ["10.88.0.1", "10.88.0.2"],
                "ip": {"address": "10.88.0.50", "netmask": "255.255.255.0", "gateway": "10.88.0.1"}},
            "netboot": {"osie": {"kernelParams": ["a=b"]}},
        }))
        .expect("a script");
        let kernel = script.lines().find(|line| line.starts_with("kernel ")).expect("a kernel");
        assert_eq!(
            kernel,
            "kernel http://10.88.0.1:7080/osie/52:54:00:00:00:01/vmlinuz-x86_64 vlan_id=12 facility=lab syslog_host= \
             grpc_authority=10.88.0.1:42113 tinkerbell_tls=false tinkerbell_insecure_tls=false \
             worker_id=52:54:00:00:00:01 hw_addr=52:54:00:00:00:01 modules=loop,squashfs,sd-mod,usb-storage intel_iommu=on \
             iommu=pt initrd=initramfs-x86_64 console=tty0 console=ttyS1,115200 \
             ipam=52-54-00-00-00-01:12:10.88.0.50:255.255.255.0:10.88.0.1:s1:10.88.0.1,10.88.0.2:: panic=30 a=b \
             && goto initrd ||"
        );
    }

    #[test]
    fn the_installer_is_told_of_the_other_replicas() {
        let all = [Ipv4Addr::new(10, 88, 0, 1), Ipv4Addr::new(10, 88, 0, 2), Ipv4Addr::new(10, 88, 0, 3)];
        let script = made_of(json!({}), &all).expect("a script");
        let told = " metalplane_grpc_fallback=10.88.0.2:42113,10.88.0.3:42113 worker_id=";
        assert!(script.contains(" grpc_authority=10.88.0.1:42113 ") && script.contains(told), "{script}");
    }

    #[test]
    fn a_console_that_is_configured_takes_the_place_of_upstreams() {
        let osie = json!({"netboot": {"osie": {"kernelParams": ["console=ttyS0"]}}});
        let script = made(osie).expect("a script");
        assert_eq!(script.matches("console=").count(), 1, "{script}");
        assert!(script.contains(" console=ttyS0 "), "{script}");
    }

    #[test]
    fn a_hardware_has_files_and_scripts_of_its_own() {
        let osie = json!({"netboot": {"osie": {"baseURL": "http://images/hook/", "kernel": "k", "initrd": "i"}}});
        let script = made(osie).expect("a script");
        assert!(
            script.contains("kernel http://images/hook/k ") && script.contains("initrd --name i http://images/hook/i ")
        );
        let url = made(json!({"netboot": {"ipxe": {"url": "http://x/y"}}})).expect("a script");
        assert_eq!(url, "#!ipxe\nchain --autofree http://x/y\n");
        let contents = made(json!({"netboot": {"ipxe": {"contents": "shell"}}})).expect("a script");
        assert_eq!(contents, "#!ipxe\nshell\n");
    }

    #[test]
    fn a_reason_is_one_line_of_a_script() {
        assert_eq!(local_disk("Hardware 'a' ${x}\nshell || b"), "#!ipxe\necho Hardware 'a' xshell  b\nexit 1\n");
    }

    #[test]
    fn what_would_break_a_script_is_refused_by_its_field() {
        for bad in ["a b", "a\nshell", "${net0/mac}"] {
            let error = made(json!({"netboot": {"osie": {"kernelParams": [bad]}}})).expect_err(bad);
            assert!(error.starts_with("netboot.osie.kernelParams: "), "{error}");
        }
    }
}
