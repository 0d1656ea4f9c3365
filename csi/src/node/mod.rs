//! How a volume becomes a block device or a folder on an ordinary node: a loop device on the image (or, in proxy mode, the
//! disk that the DPU has plugged in), a filesystem on that, mounts of either. The programs that do it are the system's own (util-linux, e2fsprogs, xfsprogs).

mod command;
mod device;
mod filesystem;
mod image;
mod loop_device;
mod mounts;

pub use command::CommandError;
pub use device::{Device, ExpandError, PublishError, StageError, Stats, StatsError, TakeDownError, Target, Usage};
pub use device::{mounted_at, unpublish};
pub use image::{ailment, expand, publish, stage, stats, unstage};
pub use mounts::MountError;
