//! The replicas of this service on one provisioning network. Each answers at its node's address; what they know of servers is the API
//! server's, so any of them goes on with what another began.

use anyhow::{Result, bail};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replicas {
    pub own: Ipv4Addr,
    /// In the same order for all of them.
    all: Vec<Ipv4Addr>,
}

impl Replicas {
    pub fn alone(own: Ipv4Addr) -> Self {
        Self { own, all: vec![own] }
    }

    /// `own`: which of them this one is; `None`: the one whose address this node has.
    pub fn find(mut all: Vec<Ipv4Addr>, own: Option<Ipv4Addr>) -> Result<Self> {
        all.sort_unstable();
        all.dedup();
        let here: Vec<_> = match own {
            Some(own) if !all.contains(&own) => bail!("--own-address={own} is none of --address"),
            Some(own) => vec![own],
            None => all.iter().copied().filter(|address| is_here(*address)).collect(),
        };
        let names = |some: &[Ipv4Addr]| some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match here[..] {
            [own] => Ok(Self { own, all }),
            [] => bail!("this node has none of the addresses of --address ({})", names(&all)),
            _ => bail!("this node has several of the addresses of --address ({}): write --own-address", names(&here)),
        }
    }

    pub fn others(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.all.iter().copied().filter(|address| *address != self.own)
    }

    pub fn has(&self, address: Ipv4Addr) -> bool {
        self.all.contains(&address)
    }

    /// Among all, from 0.
    pub fn number(&self) -> usize {
        self.all.iter().position(|address| *address == self.own).unwrap_or_default()
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Whether the one of so many things that has this number is this replica's: they have them in turn.
    pub fn has_turn(&self, number: u32) -> bool {
        let at = usize::try_from(number).unwrap_or_default() % self.all.len();
        self.all[at] == self.own
    }

    /// Where servers send their log: of several replicas each takes its own.
    pub fn syslog(&self, configured: Option<Ipv4Addr>) -> Option<Ipv4Addr> {
        configured.map(|address| if self.has(address) { self.own } else { address })
    }
}

fn is_here(address: Ipv4Addr) -> bool {
    UdpSocket::bind(SocketAddrV4::new(address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Ipv4Addr = Ipv4Addr::new(127, 88, 0, 1);
    const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    #[test]
    fn a_replica_is_the_one_whose_address_its_node_has() {
        let found = Replicas::find(vec![ELSEWHERE, HERE, HERE], None).expect("one is here");
        assert_eq!((found.own, found.others().collect::<Vec<_>>(), found.count()), (HERE, vec![ELSEWHERE], 2));
        let said = |all: &[Ipv4Addr], own| format!("{:#}", Replicas::find(all.to_vec(), own).expect_err("refused"));
        assert!(said(&[ELSEWHERE], None).contains("has none of the addresses of --address (192.0.2.1)"));
        let two = [HERE, Ipv4Addr::LOCALHOST];
        assert!(
            said(&two, None)
                .contains("several of the addresses of --address (127.0.0.1, 127.88.0.1): write --own-address")
        );
        assert!(said(&two, Some(ELSEWHERE)).contains("none of --address"));
        assert_eq!(Replicas::find(two.to_vec(), Some(HERE)).expect("named").own, HERE);
    }

    #[test]
    fn each_number_is_one_replicas_turn_and_logs_are_taken_by_each() {
        let all = vec![ELSEWHERE, HERE, Ipv4Addr::new(192, 0, 2, 2)];
        let replicas: Vec<_> =
            all.iter().map(|own| Replicas::find(all.clone(), Some(*own)).expect("one of them")).collect();
        for number in 0..10 {
            assert_eq!(replicas.iter().filter(|replica| replica.has_turn(number)).count(), 1, "{number}");
        }
        assert_eq!(replicas.iter().map(Replicas::number).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(replicas[1].syslog(Some(ELSEWHERE)), Some(HERE));
        assert_eq!(replicas[1].syslog(Some(Ipv4Addr::LOCALHOST)), Some(Ipv4Addr::LOCALHOST));
    }
}
