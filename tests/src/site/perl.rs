//! A program in Perl that runs in some network namespace: told by lines, and heard by lines. Every Debian has Perl.

use anyhow::{Context, Result, ensure};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

/// Ends with this value.
pub struct Perl {
    name: String,
    heard: Arc<Mutex<Vec<String>>>,
    stdin: tokio::sync::Mutex<ChildStdin>,
    child: Child,
}

impl Perl {
    /// `inside`: what enters the namespace. Returns once the program has said that it is ready.
    pub async fn start(mut inside: Command, name: &str, program: &str, arguments: &[&str]) -> Result<Self> {
        inside.args(["perl", "-e", program]).args(arguments);
        inside.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = inside.spawn().context("start perl")?;
        let stdin = tokio::sync::Mutex::new(child.stdin.take().context("its input")?);
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let first = lines.next_line().await?;
        ensure!(first.as_deref() == Some("ready"), "the program in {name} said {first:?}");
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let says = heard.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                says.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        Ok(Self { name: name.to_owned(), heard, stdin, child })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Everything since it began.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub async fn is_told(&self, line: &str) -> Result<()> {
        let mut stdin = self.stdin.lock().await;
        stdin.write_all(format!("{line}\n").as_bytes()).await.context("tell it")?;
        stdin.flush().await.context("tell it")
    }

    pub async fn end(mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("end the program in {}", self.name))
    }
}
