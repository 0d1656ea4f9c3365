//! What a reason of [`crate::reason`] is about: a closed set, each with the name of its object. Its words are for people.

use std::fmt;

macro_rules! subjects {
    ($(#[$meta:meta])* $name:ident { $( $variant:ident $(($field:ident: $type:ty))? $words:literal; )* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name { $( $variant $(($type))?, )* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $( Self::$variant $(($field))? => write!(f, $words), )* }
            }
        }
    };
}

subjects! {
    /// The name in brackets is that of what is named in the words.
    About {
        MachineFinalizer "the machine's finalizer";
        ImageFinalizer "the image's finalizer";
        OperationFinalizer "the operation's finalizer";
        MachineLock(machine: String) "the lock of BareMetalMachine '{machine}'";
        HardwareClaim(hardware: String) "the claim on Hardware '{hardware}'";
        Claim(claim: String) "PersistentVolumeClaim '{claim}'";
        ClaimProtection(claim: String) "the protection of PersistentVolumeClaim '{claim}'";
        VolumeOfClaim(claim: String) "the volume of PersistentVolumeClaim '{claim}'";
        VolumeOfDisk(disk: String) "the volume of disk '{disk}'";
        VolumeOfImage "the volume of the image";
        VolumeHold(claim: String) "the hold on the volume of PersistentVolumeClaim '{claim}'";
        VolumeAttachment(claim: String) "the VolumeAttachment of PersistentVolumeClaim '{claim}'";
        VolumeSnapshot(snapshot: String) "VolumeSnapshot '{snapshot}'";
        VolumeGroupSnapshot(snapshot: String) "VolumeGroupSnapshot '{snapshot}'";
        GroupSnapshotLabels "the labels by which the VolumeGroupSnapshot finds the PersistentVolumeClaims";
        VolumeSnapshots "the VolumeSnapshots of the MachineSnapshot";
        VolumeSnapshotsOfImage "the VolumeSnapshots of the image";
        ImageRecord "the record of the verified image";
        HolderPod(pod: String) "holder pod '{pod}'";
        Disk(disk: String) "disk '{disk}'";
        SeedDisk "the cloud-init disk";
        Eraser "the eraser";
        HoldDisk "the hold disk";
        Interface(interface: String) "interface '{interface}'";
        Import "the import";
        DiskAttachment(disk: String) "the DiskAttachment of disk '{disk}'";
        SeedAttachment "the DiskAttachment of the cloud-init disk";
        EraserAttachment "the DiskAttachment of the eraser";
        HoldDiskAttachment "the DiskAttachment of the hold disk";
        ImportAttachment "the DiskAttachment of the import";
        NicAttachment(interface: String) "the NicAttachment of interface '{interface}'";
        HoldOf(attachment: String) "the hold of attachment '{attachment}'";
        VNic(vnic: String) "VNic '{vnic}'";
        VNicProtection(vnic: String) "the protection of VNic '{vnic}'";
        VNicHold(vnic: String) "the hold on VNic '{vnic}'";
        Vpc(vpc: String) "Vpc '{vpc}'";
        DiskList "the list of disks";
        RestoredClaims "the annotations that name the restored PersistentVolumeClaims";
        InstallRecord(number: u32) "the record of installation {number}";
        ServerRecord(hardware: String) "the record of the UUID of host '{hardware}'";
        DisksRecord "the record of the disks that the installer saw";
        DiscoveryRecord "the record of the boot option's discovery";
        EraseRecord(number: u32) "the record of erasing {number}";
        ReleaseRecord "the record of a release with data";
        ReleasedRecord "the record that nothing of the machine is left on its server";
        Template(template: String) "Template '{template}'";
        Workflow(workflow: String) "Workflow '{workflow}'";
        InstallSeed(secret: String) "Secret '{secret}' with the cloud-init data of the installation";
    }
}
