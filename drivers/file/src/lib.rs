//! [`ports::VolumeConnector`] for volumes of our own CSI driver, `csi.metalplane.io`: raw images in a file pool that every
//! DPU has mounted at the same path.
//!
//! A volume is `<pool>/volumes/<handle>/disk.img`. Connecting opens nothing: whoever emulates the disk opens the file. It
//! checks that the volume is what it is said to be and takes:
//!
//! * the **connection record** `<records>/<uid>-<epoch>.json`, below `/run`: a restart of the agent finds it, a reboot
//!   forgets it (docs/design/fencing.md, *RecordIsAdopted*, *RebootForgets*);
//! * the **writer's name** of the image, `<pool>/volumes/<handle>/writers/<identity>.<id>.img`, of a read-write connection, another one each
//!   time: what is handed out, and what a fence takes away ([`FileFence`]);
//! * the **writer record** `<pool>/volumes/<handle>/writer.json` of a read-write connection: the identity and the epoch of
//!   the last writer, on the storage itself. The epoch of a volume's hold only grows, so a connect with an epoch below
//!   the recorded one is a silent holder that woke up, and is refused;
//! * the **reader's file** `<pool>/readers/<handle>.<identity>` of a read-only connection.
//!
//! A writer is the volume's only client: where a node has it for a pod, by the CSI driver's record, or another DPU reads it, it is
//! refused, and so are they where there is a writer. Of readers there may be any number, and a node that reads beside them. That is
//! what CSI calls MULTI_NODE_READER_ONLY; MULTI_NODE_SINGLE_WRITER, one writer among readers, is not served, for nothing
//! below a raw image makes what a reader has cached follow the writer. All look under the pool's lock (`publication.rs`).
//!
//! The writer record is checked at connect only and stops no write that is under way; the fence does.

mod connector;
mod fence;
mod publication;
mod records;
mod volume;

pub use connector::{DRIVER, FileConnector};
pub use fence::FileFence;
