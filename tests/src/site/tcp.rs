//! TCP between two network namespaces, in packets of full size: by either family, for the programs ask nothing but the address which it is.

use super::until;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

/// Of whoever waits for a connection.
const SERVE: &str = include_str!("serve.pl");
/// Of whoever connects.
const FETCH: &str = include_str!("fetch.pl");
const SOON: Duration = Duration::from_secs(150);

/// The words by which a node, or a guest with Perl, serves one connection to this address.
pub fn serve(address: &str) -> [&str; 4] {
    ["perl", "-e", SERVE, address]
}

/// Who `serves` waits at `listen`, and who `calls` connects to `to`. Everything arrives; gives the address that the caller was seen by.
pub async fn tcp(
    serves: impl AsyncFn(&[&str]) -> Result<String>,
    calls: impl AsyncFn(&[&str]) -> Result<String>,
    listen: &str,
    to: &str,
) -> Result<String> {
    let (server, client) = (serve(listen), ["perl", "-e", FETCH, to]);
    let awaited = format!("{to} answers TCP");
    let called = until(&awaited, SOON, async || Ok(calls(&client).await.map_err(|error| format!("{error:#}"))));
    let (served, told) = tokio::join!(serves(&server), called);
    served.with_context(|| format!("the server at {listen}"))?;
    let told = told?;
    let (seen, behind) = told.split_once(' ').context("the caller tells two things")?;
    ensure!(behind == "100000", "{behind} bytes of 100000 arrived from {to}");
    Ok(seen.to_owned())
}
