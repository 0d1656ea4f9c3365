//! The network devices that stand for functions of the host.

use futures::TryStreamExt;
use planner::exposure::ExposureId;
use ports::{ErrorClass, PortError};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Representor {
    pub index: u32,
    pub name: String,
    /// Whose function it stands for now.
    pub owner: Option<ExposureId>,
    pub up: bool,
    pub mtu: u32,
}

/// In the network namespace of the thread that runs it. Ends when the handle is dropped.
pub(crate) fn connect() -> Result<Handle, PortError> {
    let (connection, handle, _) = rtnetlink::new_connection()
        .map_err(|error| PortError::new(ErrorClass::Unreachable, format!("open a netlink socket: {error}")))?;
    tokio::spawn(connection);
    Ok(handle)
}

pub(crate) async fn read(handle: &Handle) -> Result<Vec<Representor>, PortError> {
    let all: Result<Vec<LinkMessage>, _> = handle.link().get().execute().try_collect().await;
    let all = all.map_err(|error| failed("list", "the network devices", &error))?;
    Ok(all.iter().filter_map(representor).collect())
}

fn representor(link: &LinkMessage) -> Option<Representor> {
    let mut found = Representor {
        index: link.header.index,
        name: String::new(),
        owner: None,
        up: link.header.flags.contains(LinkFlags::Up),
        mtu: 0,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::IfAlias(alias) => found.owner = ExposureId::of_alias(alias),
            LinkAttribute::Mtu(mtu) => found.mtu = *mtu,
            _ => {}
        }
    }
    (!found.name.is_empty()).then_some(found)
}

impl Representor {
    pub(crate) async fn set_link(&self, handle: &Handle, up: bool) -> Result<(), PortError> {
        let change = LinkUnspec::new_with_index(self.index);
        let change = if up { change.up() } else { change.down() };
        let set = handle.link().set(change.build()).execute().await;
        set.map_err(|error| failed(if up { "set up" } else { "set down" }, &self.name, &error))
    }

    /// The link is down, what the host may send fits, and the last thing is whose it is.
    pub(crate) async fn take(&self, handle: &Handle, id: &ExposureId, mtu: u16) -> Result<(), PortError> {
        self.set_link(handle, false).await?;
        if self.mtu < u32::from(mtu) {
            let change = LinkUnspec::new_with_index(self.index).mtu(u32::from(mtu)).build();
            let set = handle.link().set(change).execute().await;
            set.map_err(|error| failed(&format!("set MTU {mtu} of"), &self.name, &error))?;
        }
        self.set_alias(handle, id.alias()).await
    }

    /// The link is down, and it is nobody's.
    pub(crate) async fn release(&self, handle: &Handle) -> Result<(), PortError> {
        self.set_link(handle, false).await?;
        self.set_alias(handle, String::new()).await
    }

    async fn set_alias(&self, handle: &Handle, alias: String) -> Result<(), PortError> {
        let change = LinkUnspec::new_with_index(self.index).alias(alias).build();
        let set = handle.link().set(change).execute().await;
        set.map_err(|error| failed("name the owner of", &self.name, &error))
    }
}

/// errno(3): not permitted; no such device; access denied.
const EPERM: i32 = 1;
const ENODEV: i32 = 19;
const EACCES: i32 = 13;

pub(crate) fn failed(what: &str, device: &str, error: &rtnetlink::Error) -> PortError {
    let class = match error {
        rtnetlink::Error::NetlinkError(message) => match -message.raw_code() {
            EPERM | EACCES => ErrorClass::Unauthorized,
            ENODEV => ErrorClass::NotFound,
            _ => ErrorClass::Busy,
        },
        _ => ErrorClass::Busy,
    };
    PortError::new(class, format!("{what} {device}: {error}"))
}
