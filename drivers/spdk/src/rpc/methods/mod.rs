//! The methods that are used, each a struct of its parameters with the type of its answer.
//!
//! Names and types are those of SPDK 26.05 (`schema/schema.json`); the answers, which the schema does not describe, are
//! those of its `doc/jsonrpc.md`, as much of each as is read.

use serde::{Serialize, de::DeserializeOwned};

pub mod bdev;
pub mod lvol;
pub mod nvme;
pub mod nvmf;
pub mod rbd;
pub mod snap;
pub mod vhost;

pub trait Method: Serialize + Sync {
    const NAME: &'static str;
    type Answer: DeserializeOwned;
}

/// An answer that says no more than that it was done.
pub type Done = serde::de::IgnoredAny;

/// `"name" => Answer, Struct { field: type }`. An optional parameter that is `None` is not sent.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:literal => $answer:ty, $method:ident $(<$life:lifetime>)? {
        $($(#[$about:meta])* $field:ident: $type:ty),* $(,)?
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, serde::Serialize)]
            pub struct $method $(<$life>)? {
                $($(#[$about])* pub $field: $type,)*
            }

            impl $(<$life>)? $crate::rpc::Method for $method $(<$life>)? {
                const NAME: &'static str = $name;
                type Answer = $answer;
            }
        )*
    };
}
pub(crate) use methods;

methods! {
    "spdk_get_version" => Version, GetVersion {}
    /// Those that the program has.
    "rpc_get_methods" => Vec<String>, GetMethods {}
}

#[derive(Debug, Clone, serde::Deserialize)]
pub struct Version {
    pub version: String,
}
