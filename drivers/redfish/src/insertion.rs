//! What is sent to insert an image (DMTF DSP0268, VirtualMedia). No I/O.

use planner::host::MediaUrl;
use serde_json::{Value, json};

/// The parameters of one attempt.
#[derive(Clone)]
pub(crate) struct Insertion {
    url: MediaUrl,
    /// Optional, and true by default (DSP0268).
    inserted: bool,
    write_protected: bool,
    /// Required by some BMCs.
    protocol: Option<&'static str>,
    stream: bool,
    /// With a user and a password that stand for none.
    anonymous: bool,
}

impl Insertion {
    pub(crate) fn new(url: &MediaUrl) -> Self {
        Self {
            url: url.clone(),
            inserted: true,
            write_protected: true,
            protocol: None,
            stream: false,
            anonymous: false,
        }
    }

    pub(crate) fn parameters(&self) -> Value {
        let mut all = json!({"Image": self.url.reveal()});
        if self.inserted {
            all["Inserted"] = true.into();
        }
        if self.write_protected {
            all["WriteProtected"] = true.into();
        }
        if let Some(protocol) = self.protocol {
            all["TransferProtocolType"] = protocol.into();
        }
        if self.stream {
            all["TransferMethod"] = "Stream".into();
        }
        if self.anonymous {
            all["UserName"] = "none".into();
            all["Password"] = "none".into();
        }
        all
    }

    /// The next attempt after a BMC has refused this one; `None`: there is no other. `said`: the BMC's answer. As OpenStack's sushy and
    /// Tinkerbell's bmclib found: some BMCs require the protocol, the method, or (NVIDIA's DGX) an account, and name it; some of Lenovo's
    /// take no `WriteProtected`, some of Supermicro's neither that nor `Inserted`.
    pub(crate) fn after(&self, said: &str) -> Option<Self> {
        let mut next = self.clone();
        let protocol = protocol(&self.url).filter(|_| self.protocol.is_none() && said.contains("TransferProtocolType"));
        if protocol.is_some() {
            next.protocol = protocol;
        } else if !self.stream && said.contains("TransferMethod") {
            next.stream = true;
        } else if !self.anonymous && said.contains("UserName") {
            next.anonymous = true;
        } else if self.write_protected {
            next.write_protected = false;
        } else if self.inserted {
            next.inserted = false;
        } else {
            return None;
        }
        Some(next)
    }
}

/// DSP0268, VirtualMedia: TransferProtocolType.
fn protocol(url: &MediaUrl) -> Option<&'static str> {
    match url.scheme().as_str() {
        "http" => Some("HTTP"),
        "https" => Some("HTTPS"),
        "nfs" => Some("NFS"),
        "cifs" | "smb" => Some("CIFS"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts(url: &str, said: &[&str]) -> Vec<Vec<String>> {
        let mut insertion = Some(Insertion::new(&MediaUrl::shown(url)));
        let mut said = said.iter();
        let mut attempts = Vec::new();
        while let Some(attempt) = insertion {
            let parameters = attempt.parameters();
            attempts.push(
                parameters.as_object().into_iter().flatten().map(|(key, value)| format!("{key} {value}")).collect(),
            );
            insertion = attempt.after(said.next().unwrap_or(&"no"));
        }
        attempts
    }

    #[test]
    fn what_is_refused_is_asked_for_with_less_and_with_what_is_named() {
        let (image, inserted) = (r#"Image "https://a/b.iso""#, "Inserted true");
        let full = vec![image, inserted, "WriteProtected true"];
        assert_eq!(attempts("https://a/b.iso", &[]), [full.clone(), vec![image, inserted], vec![image]]);
        let named = attempts("https://a/b.iso", &["TransferProtocolType", "TransferMethod", "TransferMethod"]);
        assert_eq!(named.len(), 5, "nothing is added twice: {named:?}");
        assert_eq!(named[1], [&full[..2], &[r#"TransferProtocolType "HTTPS""#], &full[2..]].concat());
        assert!(named[2].contains(&r#"TransferMethod "Stream""#.to_owned()), "{named:?}");
        let account = attempts("https://a/b.iso", &["UserName"]).swap_remove(1);
        assert!(account.contains(&r#"Password "none""#.to_owned()), "{account:?}");
        // There is no word for this protocol.
        assert_eq!(attempts("tftp://a/b.iso", &["TransferProtocolType"]).len(), 3);
    }
}
