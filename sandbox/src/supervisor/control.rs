//! The control socket: one JSON object per line in, one per line out.
//!
//! | request | what |
//! |---|---|
//! | `{"op":"list"}` | all processes, whether they run, their logs |
//! | `{"op":"start","process":P}` | start one again that ended |
//! | `{"op":"stop","process":P}` | SIGTERM, and SIGKILL after its time |
//! | `{"op":"kill","process":P}` | SIGKILL to its process group |
//! | `{"op":"start\|stop\|kill","group":G}` | the same for all of a group but a node's `holder` |
//! | `{"op":"spawn","process":{name,argv,env,enter}}` | start a new process, as a child like the others |
//! | `{"op":"power","dpu":D,"state":"on\|off"}` | a DPU's power; `on` answers when its node is Ready again |
//! | `{"op":"load-image","tar":PATH,"nodes":[…]}` | import an image into every (or those) nodes that are on and lack it |
//! | `{"op":"forward","to":"10.77.0.101:443"}` | a loopback port of this machine, relayed into the sandbox |
//! | `{"op":"down"}` | end the sandbox |
//!
//! An answer is `{"ok":true,…}` or `{"ok":false,"error":"…"}`. A request may take as long as what it asks for; others
//! are answered meanwhile on connections of their own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Notify;

use crate::cluster::{Site, images, node, relay};
use crate::layout::{Layout, NodeId};
use crate::supervisor::process::ProcessSpec;

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    List,
    Start { process: Option<String>, group: Option<String> },
    Stop { process: Option<String>, group: Option<String> },
    Kill { process: Option<String>, group: Option<String> },
    Spawn { process: ProcessSpec },
    Power { dpu: String, state: PowerState },
    LoadImage { tar: PathBuf, nodes: Option<Vec<String>> },
    Forward { to: SocketAddr },
    Down,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum PowerState {
    On,
    Off,
}

/// Answers requests until the runtime ends.
pub fn serve(site: Arc<Site>, end: Arc<Notify>) -> Result<()> {
    let path = site.layout.control_socket();
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot listen on {}", path.display()))?;
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let (site, end) = (site.clone(), end.clone());
            tokio::spawn(async move {
                if let Err(error) = converse(&site, &end, stream).await {
                    tracing::debug!("control connection: {error:#}");
                }
            });
        }
    });
    Ok(())
}

/// Sends one request to a running supervisor and returns its answer without `ok`.
pub async fn request(layout: &Layout, request: &Value) -> Result<Value> {
    let path = layout.control_socket();
    let stream = UnixStream::connect(&path)
        .await
        .with_context(|| format!("sandbox {} does not answer at {}: is it up?", layout.name, path.display()))?;
    let (reader, mut writer) = stream.into_split();
    writer.write_all(format!("{request}\n").as_bytes()).await?;
    let answer = BufReader::new(reader).lines().next_line().await?;
    let answer = answer.with_context(|| format!("the supervisor of {} ended without an answer", layout.name))?;
    let mut answer: Value = serde_json::from_str(&answer)?;
    if answer["ok"] == json!(true) {
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("ok");
        }
        return Ok(answer);
    }
    bail!("{}", answer["error"].as_str().unwrap_or("the supervisor refused without a reason"))
}

async fn converse(site: &Site, end: &Notify, stream: UnixStream) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        let answer = match serde_json::from_str(&line) {
            Ok(request) => answer(site, end, request).await,
            Err(error) => Err(error).context("not a request"),
        };
        let answer = match answer {
            Ok(mut fields) => {
                fields["ok"] = json!(true);
                fields
            }
            Err(error) => json!({"ok": false, "error": format!("{error:#}")}),
        };
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(())
}

async fn answer(site: &Site, end: &Notify, request: Request) -> Result<Value> {
    match request {
        Request::List => return Ok(json!({"processes": site.table.list()})),
        Request::Start { process, group } => {
            for name in targets(site, process, group)? {
                if site.table.pid(&name).is_none() {
                    site.table.start_again(&name)?;
                }
            }
        }
        Request::Stop { process, group } => {
            for name in targets(site, process, group)?.iter().rev() {
                site.table.stop(name).await?;
            }
        }
        Request::Kill { process, group } => {
            for name in targets(site, process, group)? {
                site.table.kill(&name).await?;
            }
        }
        Request::Spawn { process } => return Ok(json!({"pid": site.table.start(process)?})),
        Request::Power { dpu, state } => {
            let node = site.node(&dpu)?;
            if !node.is_dpu() {
                bail!("{dpu} is no DPU: only a DPU has power of its own");
            }
            match state {
                PowerState::On => site.power_on(node).await?,
                PowerState::Off => site.power_off(node).await?,
            }
        }
        Request::LoadImage { tar, nodes } => return load_image(site, &tar, nodes).await,
        Request::Forward { to } => {
            let listener = TcpListener::bind("127.0.0.1:0").await.context("no free loopback port")?;
            let address = listener.local_addr()?;
            relay::serve(listener, site.dialer.clone(), to);
            return Ok(json!({"address": address.to_string()}));
        }
        Request::Down => end.notify_one(),
    }
    Ok(json!({}))
}

/// The processes that a request means. A node's holder is its mounts: only power takes that away.
fn targets(site: &Site, process: Option<String>, group: Option<String>) -> Result<Vec<String>> {
    match (process, group) {
        (Some(process), None) => Ok(vec![process]),
        (None, Some(group)) => {
            let names = site.table.group(&group);
            if names.is_empty() {
                bail!("no group {group:?}; known: {}", site.table.groups().join(", "));
            }
            Ok(names.into_iter().filter(|name| !name.ends_with("/holder")).collect())
        }
        _ => bail!("give either a process or a group"),
    }
}

async fn load_image(site: &Site, tar: &Path, nodes: Option<Vec<String>>) -> Result<Value> {
    let wanted = match nodes {
        Some(names) => names.iter().map(|name| site.node(name)).collect::<Result<Vec<_>>>()?,
        None => site.nodes.iter().collect(),
    };
    let is_on = |node: &&NodeId| site.table.pid(&node::holder(node)).is_some();
    let (on, off): (Vec<&NodeId>, Vec<&NodeId>) = wanted.into_iter().partition(is_on);
    let loads = futures::future::try_join_all(on.iter().map(|node| images::load(site, node, tar))).await?;
    let which = |fresh: bool| {
        let nodes = on.iter().zip(&loads).filter(move |(_, was_fresh)| **was_fresh == fresh);
        nodes.map(|(node, _)| node.name.as_str()).collect::<Vec<_>>()
    };
    let off: Vec<&str> = off.iter().map(|node| node.name.as_str()).collect();
    Ok(json!({"imported": which(true), "had": which(false), "off": off}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_misspelt_ones_are_not() {
        for good in [
            r#"{"op":"list"}"#,
            r#"{"op":"stop","process":"dpu-1/kubelet"}"#,
            r#"{"op":"kill","group":"dpu-1"}"#,
            r#"{"op":"spawn","process":{"name":"a/b","argv":["true"],"env":{"A":"1"},"enter":"dpu-1"}}"#,
            r#"{"op":"power","dpu":"dpu-1","state":"off"}"#,
            r#"{"op":"load-image","tar":"/x.tar"}"#,
            r#"{"op":"forward","to":"10.77.0.101:443"}"#,
        ] {
            serde_json::from_str::<Request>(good).map(drop).unwrap_or_else(|error| panic!("{good}: {error}"));
        }
        for wrong in [
            r#"{"op":"reboot"}"#,
            r#"{"op":"stop","proces":"dpu-1/kubelet"}"#,
            r#"{"op":"power","dpu":"dpu-1","state":"cycle"}"#,
            r#"{"op":"spawn","process":{"name":"a/b"}}"#,
        ] {
            assert!(serde_json::from_str::<Request>(wrong).is_err(), "{wrong} should be refused");
        }
    }
}
