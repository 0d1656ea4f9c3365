//! The slots socket: QMP, whether the host is on or off.
//!
//! Each connection greets, negotiates and then takes commands, one line of JSON each; events go to all of them.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::broadcast::error::RecvError;

use super::machine::Machine;
use super::qmp::{Arguments, Refusal, to_wire};

const CAPABILITIES: &str = "qmp_capabilities";

/// Listens on a fresh socket.
pub fn listen(path: &Path) -> Result<UnixListener> {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("remove the old socket {}", path.display()));
    }
    UnixListener::bind(path).with_context(|| format!("listen on {}", path.display()))
}

pub async fn serve(listener: UnixListener, machine: Arc<Machine>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await.context("accept on the slots socket")?;
        let machine = Arc::clone(&machine);
        tokio::spawn(async move {
            if let Err(error) = talk(stream, &machine).await {
                tracing::debug!("a connection of the slots socket ended: {error}");
            }
        });
    }
}

async fn talk(stream: UnixStream, machine: &Machine) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut events = machine.events.subscribe();
    let mut negotiated = false;
    let version = json!({ "qemu": { "major": 7, "minor": 2, "micro": 0 }, "package": "metalplane virtual server" });
    send(&mut writer, &json!({ "QMP": { "version": version, "capabilities": [] } })).await?;
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let Some(line) = line? else { return Ok(()) };
                if line.trim().is_empty() {
                    continue;
                }
                let answer = answer(&line, &mut negotiated, machine).await;
                send(&mut writer, &answer).await?;
            }
            event = events.recv() => match event {
                Ok(event) if negotiated => send(&mut writer, &event).await?,
                Ok(_) => {}
                // Whoever missed events must not believe that none came.
                Err(RecvError::Lagged(_) | RecvError::Closed) => return Ok(()),
            },
        }
    }
}

async fn send(writer: &mut (impl tokio::io::AsyncWrite + Unpin), message: &Value) -> std::io::Result<()> {
    writer.write_all(format!("{message}\r\n").as_bytes()).await
}

async fn answer(line: &str, negotiated: &mut bool, machine: &Machine) -> Value {
    let Ok(Value::Object(mut request)) = serde_json::from_str(line) else {
        return to_wire(Err(Refusal::generic("JSON parse error, expecting an object on a line of its own")), None);
    };
    let id = request.remove("id");
    let Some(command) = request.get("execute").and_then(Value::as_str).map(str::to_owned) else {
        return to_wire(Err(Refusal::generic("QMP input lacks member 'execute'")), id);
    };
    let arguments = match request.remove("arguments") {
        None => Arguments::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(_) => {
            return to_wire(Err(Refusal::generic("QMP input member 'arguments' must be an object")), id);
        }
    };
    let outcome = match (command.as_str(), *negotiated) {
        (CAPABILITIES, false) => {
            *negotiated = true;
            Ok(json!({}))
        }
        (_, false) => {
            let description = format!("Expecting capabilities negotiation with '{CAPABILITIES}'");
            Err(Refusal { class: "CommandNotFound".to_owned(), description })
        }
        (CAPABILITIES, true) => Err(Refusal {
            class: "CommandNotFound".to_owned(),
            description: "Capabilities negotiation is already complete, command ignored".to_owned(),
        }),
        (command, true) => machine.command(command, arguments).await,
    };
    to_wire(outcome, id)
}
