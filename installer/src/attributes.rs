//! What the server's hardware is, as `/sys` has it: it is sent with the first question.

use proto::tink::{AgentAttributes, Baseboard, Block, Network, Product};
use std::fs;
use std::path::Path;

pub fn read() -> AgentAttributes {
    read_in(Path::new("/sys"))
}

/// Of the server (SMBIOS 3.7, 7.2.1); `None`: its firmware tells none.
pub fn system_uuid() -> Option<String> {
    text(Path::new("/sys/class/dmi/id/product_uuid"))
}

fn read_in(sys: &Path) -> AgentAttributes {
    let dmi = |file: &str| text(&sys.join("class/dmi/id").join(file));
    AgentAttributes {
        block: names(&sys.join("block")).iter().filter_map(|name| block(&sys.join("block").join(name), name)).collect(),
        network: names(&sys.join("class/net"))
            .iter()
            // Without what only the kernel made, a VLAN's for example: its address is its NIC's.
            .filter(|name| sys.join("class/net").join(name).join("device").exists())
            .map(|name| Network {
                name: Some(name.clone()),
                mac: text(&sys.join("class/net").join(name).join("address")),
                ..Network::default()
            })
            .collect(),
        product: Some(Product {
            name: dmi("product_name"),
            vendor: dmi("sys_vendor"),
            serial_number: dmi("product_serial"),
        }),
        baseboard: Some(Baseboard {
            vendor: dmi("board_vendor"),
            product: dmi("board_name"),
            version: dmi("board_version"),
            serial_number: dmi("board_serial"),
        }),
        ..AgentAttributes::default()
    }
}

/// Disks have a device behind them; what only the kernel made (loop, ram) has none.
fn block(folder: &Path, name: &str) -> Option<Block> {
    if !folder.join("device").exists() {
        return None;
    }
    let sectors: u64 = text(&folder.join("size"))?.parse().ok()?;
    Some(Block {
        name: Some(name.to_owned()),
        size: Some((sectors * 512).to_string()),
        physical_block_size: text(&folder.join("queue/physical_block_size")),
        vendor: text(&folder.join("device/vendor")),
        model: text(&folder.join("device/model")),
        wwn: text(&folder.join("wwid")).or_else(|| text(&folder.join("device/wwid"))),
        serial_number: text(&folder.join("serial")).or_else(|| text(&folder.join("device/serial"))),
        ..Block::default()
    })
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_and_nics_are_told_and_what_has_no_device_is_not() {
        let sys = tempfile::tempdir().expect("a folder");
        for (file, content) in [
            ("block/vda/size", "2048\n"),
            ("block/vda/serial", "disk-1\n"),
            ("block/vda/device/vendor", "0x1af4\n"),
            ("block/loop0/size", "0\n"),
            ("class/net/eth0/address", "52:54:00:00:00:01\n"),
            ("class/net/eth0/device/vendor", "0x8086\n"),
            ("class/net/eth0.7/address", "52:54:00:00:00:01\n"),
            ("class/net/lo/address", "00:00:00:00:00:00\n"),
            ("class/dmi/id/product_serial", "S1\n"),
        ] {
            let path = sys.path().join(file);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, content).expect("written");
        }
        let found = read_in(sys.path());
        let [disk] = found.block.as_slice() else { panic!("{:?}", found.block) };
        assert_eq!((disk.name.as_deref(), disk.size.as_deref()), (Some("vda"), Some("1048576")));
        assert_eq!(disk.serial_number.as_deref(), Some("disk-1"));
        let [nic] = found.network.as_slice() else { panic!("{:?}", found.network) };
        assert_eq!(nic.mac.as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!(found.product.and_then(|product| product.serial_number).as_deref(), Some("S1"));
    }
}
