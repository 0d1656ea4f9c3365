//! By which protocol a BMC is spoken to, as its `bmc.tinkerbell.org` Machine asks.
//!
//! Of `providerOptions.preferredOrder` the first provider counts that Metalplane speaks; where it speaks none of them, the
//! first whose protocol it knows is refused by name. Without an order, settings of IPMI alone ask for IPMI; all else is Redfish.
//! The protocol stays the same until the object changes: a BMC that does not answer is not asked by another one.

use api::tinkerbell::machine::Connection;
use api::tinkerbell::provider_options::ProviderName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Redfish,
    /// Not spoken yet.
    Ipmi,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Self::Redfish => "Redfish",
            Self::Ipmi => "IPMI",
        }
    }
}

/// `None`: a provider of Tinkerbell's that is no protocol of a server's BMC that is known here.
fn of_provider(provider: &ProviderName) -> Option<Protocol> {
    match provider.0.to_ascii_lowercase().as_str() {
        // Vendors' names stand for Redfish with what is particular to them.
        "gofish" | "dell" | "supermicro" | "openbmc" | "asrockrack" => Some(Protocol::Redfish),
        "ipmitool" => Some(Protocol::Ipmi),
        _ => None,
    }
}

pub fn of(connection: &Connection) -> Protocol {
    let Some(options) = &connection.provider_options else { return Protocol::Redfish };
    let named: Vec<Protocol> = options.preferred_order.iter().filter_map(of_provider).collect();
    let spoken = named.iter().find(|protocol| **protocol == Protocol::Redfish);
    let only_ipmi = options.ipmitool.is_some() && options.redfish.is_none();
    let unnamed = if only_ipmi { Protocol::Ipmi } else { Protocol::Redfish };
    spoken.or(named.first()).copied().unwrap_or(unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_provider_options_decide() {
        for (options, wanted) in [
            (json!({}), Protocol::Redfish),
            (json!({"redfish": {"port": 443}, "ipmitool": {"port": 623}}), Protocol::Redfish),
            (json!({"ipmitool": {"cipherSuite": "17"}}), Protocol::Ipmi),
            (json!({"ipmitool": {"port": 623}, "preferredOrder": ["Gofish"]}), Protocol::Redfish),
            (json!({"preferredOrder": ["ipmitool"], "redfish": {"port": 443}}), Protocol::Ipmi),
            (json!({"preferredOrder": ["ipmitool", "dell"]}), Protocol::Redfish),
            (json!({"preferredOrder": ["IntelAMT", "IPMITool"]}), Protocol::Ipmi),
            (json!({"preferredOrder": ["IntelAMT"]}), Protocol::Redfish),
        ] {
            let connection = json!({"host": "10.0.0.1", "insecureTLS": true, "providerOptions": options});
            let connection: Connection = serde_json::from_value(connection).expect("a connection");
            assert_eq!(of(&connection), wanted, "{options}");
        }
        assert_eq!(of(&Connection::default()), Protocol::Redfish);
    }
}
