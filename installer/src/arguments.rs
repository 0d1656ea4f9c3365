//! The kernel's arguments, as Tinkerbell's boot scripts write them.

use std::collections::BTreeMap;

/// What of them the installer needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// `worker_id`: whom the server knows.
    pub worker: String,
    /// `grpc_authority`: host and port.
    pub server: String,
    /// `hw_addr`: the NIC that the server was started through; else whatever NIC has a link.
    pub mac: Option<[u8; 6]>,
}

impl Arguments {
    /// Each error says which argument is meant and what to write.
    pub fn parse(line: &str) -> Result<Self, String> {
        // The last one of a name counts, as for the kernel.
        let words: BTreeMap<&str, &str> = line.split_whitespace().filter_map(|word| word.split_once('=')).collect();
        let given = |name: &str| words.get(name).copied().filter(|value| !value.is_empty());
        let wanted = |name: &str, what: &str| given(name).ok_or_else(|| format!("{name} is missing: {name}={what}"));
        let worker = wanted("worker_id", "<the agent's id, usually the MAC address>")?.to_owned();
        let server = wanted("grpc_authority", "<host>:<port>")?.to_owned();
        if !server.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(format!("grpc_authority is {server:?}: write <host>:<port>"));
        }
        if given("tinkerbell_tls").is_some_and(|value| value != "false") {
            return Err(
                "tinkerbell_tls: this installer speaks to its server without TLS: write tinkerbell_tls=false".into()
            );
        }
        if let Some(vlan) = given("vlan_id").filter(|vlan| *vlan != "0") {
            return Err(format!("vlan_id is {vlan}: this installer uses the untagged network: leave it out"));
        }
        let mac = match given("hw_addr") {
            Some(text) => {
                Some(mac(text).ok_or_else(|| format!("hw_addr is {text:?}: write six bytes as 52:54:00:00:00:01"))?)
            }
            // Of a worker whose id is its MAC.
            None => mac(&worker),
        };
        Ok(Self { worker, server, mac })
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut bytes = text.split([':', '-']);
    for byte in &mut mac {
        let digits = bytes.next().filter(|digits| digits.len() == 2)?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    bytes.next().is_none().then_some(mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments of upstream's script, in its order.
    const UPSTREAM: &str = "vlan_id= facility=onprem syslog_host=10.0.0.1 grpc_authority=10.0.0.1:42113 tinkerbell_tls=false \
        tinkerbell_insecure_tls=false worker_id=machine-1 hw_addr=52:54:00:00:00:01 modules=loop,squashfs,sd-mod,usb-storage \
        intel_iommu=on iommu=pt initrd=initramfs-x86_64 console=tty0 console=ttyS1,115200";

    #[test]
    fn the_arguments_of_a_boot_script() {
        let found = Arguments::parse(UPSTREAM).expect("understood");
        let mac = Some([0x52, 0x54, 0, 0, 0, 1]);
        assert_eq!(found, Arguments { worker: "machine-1".into(), server: "10.0.0.1:42113".into(), mac });
        let found = Arguments::parse("worker_id=52-54-00-00-00-02 grpc_authority=x:1").expect("understood");
        assert_eq!(found.mac, Some([0x52, 0x54, 0, 0, 0, 2]), "an id that is a MAC address says which NIC");
        assert_eq!(Arguments::parse("worker_id=a grpc_authority=x:1").expect("understood").mac, None);
    }

    #[test]
    fn what_is_missing_or_not_served_is_named() {
        for (line, named) in [
            ("grpc_authority=x:1", "worker_id"),
            ("worker_id= grpc_authority=x:1", "worker_id"),
            ("worker_id=a", "grpc_authority"),
            ("worker_id=a grpc_authority=x", "grpc_authority"),
            ("worker_id=a grpc_authority=x:1 tinkerbell_tls=true", "tinkerbell_tls"),
            ("worker_id=a grpc_authority=x:1 vlan_id=7", "vlan_id"),
            ("worker_id=a grpc_authority=x:1 hw_addr=52:54", "hw_addr"),
        ] {
            let error = Arguments::parse(line).expect_err("refused");
            assert!(error.contains(named), "{line}: {error}");
        }
    }
}
