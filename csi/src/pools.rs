//! The pools of this process. A handle is looked for in all of them: most CSI calls do not say which pool they mean.

use crate::{
    pool::{ContentSource, Fault, Group, Handle, OpenError, Pool, Snapshot, Volume},
    topology,
};
use proto::csi::v1::TopologyRequirement;
use std::{collections::BTreeMap, path::PathBuf};

#[derive(Debug)]
pub struct Pools(BTreeMap<String, Pool>);

#[derive(Debug, thiserror::Error)]
pub enum ChooseError {
    #[error("there is no pool {asked}; this driver has: {known}")]
    Unknown { asked: String, known: String },
    #[error("this driver has several pools ({known}): name one in the StorageClass, parameters.pool")]
    NotNamed { known: String },
    #[error(
        "{what} is in pool {there}, and blocks are shared within one pool only: use a StorageClass with pool {there}"
    )]
    SourceElsewhere { what: ContentSource, there: String },
    #[error(
        "pool {pool} is on none of the nodes asked for (accessibility_requirements): use a StorageClass of a pool that is \
         there, or run the node plugin there with --pool {pool}=DIR"
    )]
    NotThere { pool: String },
    #[error("the source, {0}, does not exist")]
    NoSource(ContentSource),
    #[error(transparent)]
    Io(#[from] Fault),
}

impl Pools {
    pub fn open<'a>(dirs: impl IntoIterator<Item = (&'a str, &'a PathBuf)>) -> Result<Pools, OpenError> {
        let open = |(name, dir): (&'a str, &'a PathBuf)| Ok((name.to_owned(), Pool::open(name, dir)?));
        Ok(Pools(dirs.into_iter().map(open).collect::<Result<_, OpenError>>()?))
    }

    pub fn add(&mut self, pool: Pool) {
        self.0.insert(pool.name().to_owned(), pool);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.0.values()
    }

    pub fn named(&self, name: &str) -> Result<&Pool, ChooseError> {
        self.0.get(name).ok_or_else(|| ChooseError::Unknown { asked: name.into(), known: self.known() })
    }

    /// The pool for a new volume: the one that is named, else the source's, else the only one; and one that is where the
    /// volume is needed.
    pub fn choose(
        &self,
        name: Option<&str>,
        source: Option<&ContentSource>,
        requirement: Option<&TopologyRequirement>,
    ) -> Result<&Pool, ChooseError> {
        let pool = self.by_name_or_source(name, source, requirement)?;
        if topology::admits(requirement, pool) {
            Ok(pool)
        } else {
            Err(ChooseError::NotThere { pool: pool.name().into() })
        }
    }

    fn by_name_or_source(
        &self,
        name: Option<&str>,
        source: Option<&ContentSource>,
        requirement: Option<&TopologyRequirement>,
    ) -> Result<&Pool, ChooseError> {
        let named = name.map(|name| self.named(name)).transpose()?;
        let home = source.map(|source| self.home(source)).transpose()?.flatten();
        match (named, home) {
            (Some(named), Some(home)) if named.name() != home.name() => Err(ChooseError::SourceElsewhere {
                what: source.expect("a home is a source's").clone(),
                there: home.name().into(),
            }),
            (Some(pool), _) | (None, Some(pool)) => Ok(pool),
            (None, None) => {
                let mut there = self.iter().filter(|pool| self.0.len() == 1 || topology::admits(requirement, pool));
                match (there.next(), there.next(), source) {
                    (Some(only), None, _) => Ok(only),
                    (_, _, Some(source)) => Err(ChooseError::NoSource(source.clone())),
                    (_, _, None) => Err(ChooseError::NotNamed { known: self.known() }),
                }
            }
        }
    }

    pub fn volume(&self, handle: &Handle) -> Result<Option<(&Pool, Volume)>, Fault> {
        for pool in self.iter() {
            if let Some(volume) = pool.volume(handle)? {
                return Ok(Some((pool, volume)));
            }
        }
        Ok(None)
    }

    pub fn snapshot(&self, id: &Handle) -> Result<Option<(&Pool, Snapshot)>, Fault> {
        for pool in self.iter() {
            if let Some(snapshot) = pool.snapshot(id)? {
                return Ok(Some((pool, snapshot)));
            }
        }
        Ok(None)
    }

    pub fn group(&self, id: &Handle) -> Result<Option<(&Pool, Group)>, Fault> {
        for pool in self.iter() {
            if let Some(group) = pool.group(id)? {
                return Ok(Some((pool, group)));
            }
        }
        Ok(None)
    }

    fn home(&self, source: &ContentSource) -> Result<Option<&Pool>, Fault> {
        Ok(match source {
            ContentSource::Volume(handle) => match Handle::parse(handle) {
                Some(handle) => self.volume(&handle)?.map(|(pool, _)| pool),
                None => None,
            },
            ContentSource::Snapshot(id) => match Handle::parse(id) {
                Some(id) => self.snapshot(&id)?.map(|(pool, _)| pool),
                None => None,
            },
        })
    }

    fn known(&self) -> String {
        self.0.keys().cloned().collect::<Vec<_>>().join(", ")
    }
}
