//! How a volume becomes a block device or a folder on an ordinary node: a loop device on the image, a filesystem on
//! that, mounts of either. The programs that do it are the system's own (util-linux, e2fsprogs, xfsprogs).

mod command;
mod filesystem;
mod loop_device;
mod mounts;
mod volume;

pub use command::CommandError;
pub use mounts::MountError;
pub use volume::{ExpandError, PublishError, StageError, Stats, StatsError, TakeDownError, Target, Usage};
pub use volume::{expand, publish, stage, stats, unpublish, unstage};
