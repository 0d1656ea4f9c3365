//! The only place that names a concrete driver.

use crate::{
    args::{Args, LvolPool},
    pool::{LvolPlace, OpenError, Pool},
    pools::Pools,
};
use spdk::lvols::SpdkLvols;
use std::sync::Arc;

/// Connects to no storage node yet. Must be called inside a tokio runtime.
pub(crate) fn pools(args: &Args) -> Result<Pools, OpenError> {
    let dirs = args.pools.iter().map(|(name, dir)| (name.as_str(), dir));
    let mut pools = Pools::open(dirs)?;
    for pool in &args.lvol_pools {
        pools.add(Pool::open_lvols(&pool.name, &args.lvol_records.join(&pool.name), place(pool))?);
    }
    Ok(pools)
}

fn place(pool: &LvolPool) -> LvolPlace {
    let LvolPool { socket, lvstore, address, largest, .. } = pool.clone();
    LvolPlace { node: Arc::new(SpdkLvols::new(socket, &lvstore, address)), lvstore, address, largest }
}
