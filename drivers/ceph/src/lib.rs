//! Ceph RBD: who writes an image stands at the image, and can be refused there (docs/design/fencing.md, `CephBlocklist`).
//!
//! Ceph refuses a client by the address of its session, which has a random part and is known only once it is there. So a
//! grant's identity is a name of ours, made from UID and epoch, and the address that belongs to it is noted at the image,
//! as an attribute of its header object ([`notes`]), *before the connector answers* and so before anything is written.
//!
//! - *connect* ([`Noted`]): is the epoch refused? → who has the image open → open it, by whatever connector → who has it
//!   open now: the one that came is this grant's session → note it → is the epoch refused now?
//! - *fence* ([`CephFence`]): note that this epoch and all before it are refused → blocklist every session noted for them →
//!   break the locks that these hold.
//!
//! Either the connector sees that it is refused, or the fence sees the session: both write before they read, and both in
//! one object. A session that was never noted has written nothing, for nothing was shown to the host.
//!
//! The notes go with the image, and a clone does not inherit them as it does an image's metadata. Nothing of ours is
//! linked with Ceph: what is done here is done by its own programs `rbd`, `rados` and `ceph`, a few times per connection
//! ([`tools`]).
//!
//! | file | what |
//! |---|---|
//! | [`clusters`] | which clusters are known, and where an image is |
//! | [`tools`] | Ceph's programs, with time limits and classes of failure |
//! | [`header`] | an image's header object: notes, watchers, locks |
//! | [`notes`] | how a note is written |
//! | [`fence`] | the fence |
//! | [`noted`] | the connector |
//! | [`direct`] | another connector, for an emulator that opens images itself and cannot be fenced |
//! | [`records`] | what is connected on this boot of the DPU |

pub mod clusters;
pub mod direct;
pub mod fence;
mod header;
pub mod noted;
pub mod notes;
mod records;
pub mod tools;

pub use clusters::{Cluster, Clusters};
pub use direct::Direct;
pub use fence::CephFence;
pub use noted::Noted;

pub const DRIVER: &str = "rbd.csi.ceph.com";
