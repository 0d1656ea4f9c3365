//! The wire format of QMP and the client that talks to one QEMU.
//!
//! One command at a time: the machine's lock orders them. A reader task tells answers from events.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout, timeout_at};

const CONNECT_WITHIN: Duration = Duration::from_secs(90);
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// Arguments of a command.
pub type Arguments = Map<String, Value>;
/// What a command comes back with.
pub type Answer = Result<Value, Refusal>;

/// An error as QMP reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub class: String,
    pub description: String,
}

impl Refusal {
    pub fn generic(description: impl Into<String>) -> Refusal {
        Refusal { class: "GenericError".to_owned(), description: description.into() }
    }

    pub fn device_not_found(description: impl Into<String>) -> Refusal {
        Refusal { class: "DeviceNotFound".to_owned(), description: description.into() }
    }

    pub fn command_not_found(command: &str) -> Refusal {
        let description = format!("The command {command} has not been found");
        Refusal { class: "CommandNotFound".to_owned(), description }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.class, self.description)
    }
}

/// An answer in the form that goes over the wire.
pub fn to_wire(answer: Answer, id: Option<Value>) -> Value {
    let mut message = match answer {
        Ok(value) => json!({ "return": value }),
        Err(refusal) => json!({ "error": { "class": refusal.class, "desc": refusal.description } }),
    };
    if let Some(id) = id {
        message["id"] = id;
    }
    message
}

/// An event as QEMU would send it now.
pub fn event(name: &str, data: Value) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    json!({ "event": name, "data": data, "timestamp": { "seconds": now.as_secs(), "microseconds": now.subsec_micros() } })
}

/// A connection to one QEMU.
pub struct Client {
    writer: OwnedWriteHalf,
    answers: mpsc::UnboundedReceiver<Value>,
    /// Number of the latest command: an answer that came too late for its command is not taken for the next one's.
    number: u64,
}

impl Client {
    /// Connects to a QEMU that has just been started, and leaves negotiation mode. Gives its events too.
    pub async fn connect(path: &Path) -> Result<(Client, mpsc::UnboundedReceiver<Value>)> {
        let deadline = Instant::now() + CONNECT_WITHIN;
        let stream = loop {
            match UnixStream::connect(path).await {
                Ok(stream) => break stream,
                Err(error) if Instant::now() >= deadline => {
                    return Err(error).with_context(|| format!("connect to QEMU's monitor {}", path.display()));
                }
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        let (reader, writer) = stream.into_split();
        let (answer_sender, answers) = mpsc::unbounded_channel();
        let (event_sender, events) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                let receiver = if message.get("event").is_some() { &event_sender } else { &answer_sender };
                // Whoever stopped listening needs neither answers nor events any more.
                let _ = receiver.send(message);
            }
        });
        let mut client = Client { writer, answers, number: 0 };
        match timeout(CONNECT_WITHIN, client.answers.recv()).await {
            Ok(Some(greeting)) if greeting.get("QMP").is_some() => {}
            other => bail!("QEMU's monitor {} did not greet: {other:?}", path.display()),
        }
        client.execute("qmp_capabilities", Arguments::new()).await.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        Ok((client, events))
    }

    pub async fn execute(&mut self, command: &str, arguments: Arguments) -> Answer {
        self.number += 1;
        let mut message = json!({ "execute": command, "id": self.number });
        if !arguments.is_empty() {
            message["arguments"] = Value::Object(arguments);
        }
        let gone = || Refusal::generic(format!("the host went off during {command}"));
        self.writer.write_all(format!("{message}\n").as_bytes()).await.map_err(|_| gone())?;
        let deadline = Instant::now() + ANSWER_WITHIN;
        let answer = loop {
            match timeout_at(deadline, self.answers.recv()).await {
                Ok(None) => return Err(gone()),
                Ok(Some(answer)) if answer["id"] == self.number => break answer,
                Ok(Some(_)) => {}
                Err(_) => return Err(Refusal::generic(format!("QEMU did not answer {command} in time"))),
            }
        };
        if let Some(error) = answer.get("error") {
            let text = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            return Err(Refusal { class: text("class"), description: text("desc") });
        }
        Ok(answer.get("return").cloned().unwrap_or(Value::Null))
    }
}
