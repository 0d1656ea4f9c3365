//! Under what an object can be found in a [`crate::cache::Cache`] beside its own name.

use kube::Resource;
use runtime::queue::Key;
use std::borrow::Cow;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum IndexKey {
    /// The object's own UID.
    Uid(String),
    /// Its own, or of a Dpu that of its attachments.
    Namespace(String),
    /// The UID of what the object was made for, belongs to, or is in use by: a machine, an image, an operation, a VNic, a Subnet.
    Owner(String),
    /// An object that this one names: its kind, and its namespace (empty for what has none, and for what lives in the inventory's)
    /// and name.
    Names(Cow<'static, str>, Key),
    /// The identifier of a server's agent, or the MAC address of one of its interfaces, in lower case.
    Agent(String),
    /// A Hardware that was discovered and that nobody has approved, or the report of a server of which there is no Hardware.
    Unapproved,
    /// The UID of the machine that is the node of the pod which a NicAttachment is of.
    Worker(String),
    /// The Hardware of this name.
    Server(String),
    /// What tells that two Hardware have one MAC address.
    SharesMac,
    /// A Hardware that no machine has claimed.
    Unclaimed,
    /// A Dpu of which nobody has said in which server it sits.
    Unassigned,
    /// A Dpu whose agent reports this chassis.
    Chassis(String),
    /// A Dpu whose agent reports orphans.
    HasOrphans,
    /// A Dpu that was asked what its host has, for the API server went back.
    AskedForReport,
    /// A SecurityGroup of this namespace that is being deleted.
    InDeletion(String),
    /// An address or a MAC address in the Subnet of this namespace and name, which the object has or asks for.
    Address(Key, String),
    /// An address that the guest of a VNic may have beside the VNic's own, in the Subnet of this namespace and name.
    Allowed(Key, String),
    /// A next hop of the Vpc of this namespace and name.
    Hop(Key, String),
}

impl IndexKey {
    pub fn uid(uid: &str) -> Self {
        Self::Uid(uid.to_owned())
    }

    pub fn namespace(namespace: &str) -> Self {
        Self::Namespace(namespace.to_owned())
    }

    pub fn owner(uid: &str) -> Self {
        Self::Owner(uid.to_owned())
    }

    pub fn agent(agent: &str) -> Self {
        Self::Agent(agent.to_ascii_lowercase())
    }

    pub fn names<K: Resource<DynamicType = ()>>(namespace: &str, name: &str) -> Self {
        Self::Names(K::kind(&()), (namespace.to_owned(), name.to_owned()))
    }
}
