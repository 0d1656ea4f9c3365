//! The installer: what a server without a DPU runs, in memory and from the network, while a Workflow puts a system on its
//! disk. It is process 1 of an initramfs of a few megabytes and has nothing else in it: no shell, no container engine.
//!
//! | module | what it is |
//! |---|---|
//! | [`arguments`] | the kernel's arguments: who this agent is, and where its server |
//! | [`system`] | mounts, the restart |
//! | [`modules`] | the kernel modules that the server's devices ask for |
//! | [`network`] | the link, and an address by DHCP |
//! | [`clock`] | set by the server's answer, where it is from before every release |
//! | [`attributes`] | what the server's hardware is, for the first question |
//! | [`session`] | who this start is: a key, for which the server takes the token once |
//! | [`agent`] | asks for actions, reports them: Tinkerbell's protocol, the newer generation |
//! | [`actions`] | the actions that are built in, by the last word of their image's name |
//! | [`filesystem`] | one of a disk, mounted while an action needs it |
//! | [`untar`] | an archive, into a file system |
//! | [`chroot`] | programs of the disk's system, run in it |
//! | [`grub`] | what that system's boot loader would start |
//! | [`boot_entries`] | what the firmware would boot of the system before |
//! | [`eraser`] | all disks of a server, without a network: the report is left on the disk that this was booted from |
//! | [`erase`] | one disk: by which commands, and whether they did it |
//! | [`disks`] | which disk is meant, and whether it may be written |
//! | [`by_id`], [`by_path`] | disks by the names that udev gives them |
//! | [`uefi_path`] | a disk by the name that its firmware gives it |
//! | [`lines`] | what is said of an action, and the last of it in the action's report |
//! | [`console`], [`syslog`] | what is said, on the console and to a server of syslog |
//!
//! **Actions are programs of this one.** Upstream's run in containers; here `image2disk` is a function, whatever registry and
//! tag its name has. An image that is not built in is `FAILED` and says so: nothing is skipped.
//!
//! **An action is a success when its effect was verified**: an image's end, checksum and flush (crate `imaging`), the backup
//! of its partition table at the disk's own end, the partitions read again and their nodes there before the next action
//! begins. Else it fails, with the disk, the cause and the last lines in the report.
//!
//! **It reports until it is heard.** The result of an action is sent until the server takes it or says that the action is none
//! of its own. A restart is reported first, and done after the answer.

pub mod actions;
pub mod agent;
pub mod arguments;
pub mod attributes;
pub mod boot_entries;
pub mod by_id;
pub mod by_path;
pub mod chroot;
pub mod clock;
pub mod console;
pub mod disks;
pub mod erase;
pub mod eraser;
pub mod filesystem;
pub mod grub;
pub mod lines;
pub mod modules;
pub mod network;
pub mod session;
pub mod syslog;
pub mod system;
pub mod uefi_path;
pub mod untar;
