//! A guest seen from its serial console: the file that the virtual server or the pod of a virtual machine writes, and its socket for typing.

use crate::site::until;
use anyhow::{Context, Result};
use sandbox::layout::Layout;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::task::JoinSet;

pub struct Guest {
    log: PathBuf,
    socket: PathBuf,
}

impl Guest {
    pub fn new(layout: &Layout, server: &str) -> Self {
        Self::at(layout.server_dir(server))
    }

    /// By the folder with the console's two files.
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { log: dir.join("console.log"), socket: dir.join("console.sock") }
    }

    /// Everything that the guest has printed since the server was racked, a `?` in the place of each byte that is not ASCII: half a
    /// character is read as it is written, and a position in what was printed stays one.
    pub fn printed(&self) -> String {
        let printed = std::fs::read(&self.log).unwrap_or_default();
        printed.into_iter().map(|byte| if byte.is_ascii() { char::from(byte) } else { '?' }).collect()
    }

    /// The last lines that are not empty.
    pub fn last_lines(&self, count: usize) -> String {
        let printed = self.printed();
        let lines: Vec<&str> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Waits until the guest has printed a line that `wanted` accepts behind position `from`; returns that line.
    pub async fn line(
        &self,
        what: &str,
        from: usize,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        until(what, limit, async || {
            let printed = self.printed();
            let found = printed.get(from..).unwrap_or_default().lines().find(|line| wanted(line)).map(str::to_owned);
            Ok(found.ok_or_else(|| printed.lines().last().unwrap_or("nothing printed").to_owned()))
        })
        .await
    }

    /// The console's shell, which listens, and the task that reads what it says.
    async fn at_shell(&self, limit: Duration) -> Result<(OwnedWriteHalf, JoinSet<std::io::Result<u64>>)> {
        let socket = UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("connect to the serial console {}", self.socket.display()))?;
        let (mut reader, mut socket) = socket.into_split();
        // What nobody reads stops the guest's console after some 300 characters: each comes as a packet of its own.
        let mut drained = JoinSet::new();
        drained.spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
        self.shell_listens(&mut socket, limit).await?;
        Ok((socket, drained))
    }

    /// Types a command at the console's shell that has no end: `reboot`, or one in the background. The shell has read it
    /// when this returns.
    pub async fn order(&self, command: &str, limit: Duration) -> Result<()> {
        let (mut socket, _drained) = self.at_shell(limit).await?;
        let from = self.printed().len();
        socket.write_all(format!("echo MP-''ORDERED; sync; {command}\n").as_bytes()).await?;
        self.line(&format!("the guest was told to {command}"), from, limit, |l| l.contains("MP-ORDERED"))
            .await
            .map(drop)
    }

    /// Types a command at the console's shell and waits until it has ended; gives what was printed meanwhile.
    pub async fn shell(&self, command: &str, limit: Duration) -> Result<String> {
        let (mut socket, _drained) = self.at_shell(limit).await?;
        let from = self.printed().len();
        // The mark is split in what is typed, so that the console's echo of it is not taken for the output.
        socket.write_all(format!("{command}; echo MP-''DONE $?\n").as_bytes()).await?;
        self.ended(command, from, limit).await
    }

    /// The same, of a command that reads from the console: it gets `input`, whose lines are short, and then its end.
    pub async fn fed(&self, command: &str, input: &str, limit: Duration) -> Result<String> {
        let (mut socket, _drained) = self.at_shell(limit).await?;
        let from = self.printed().len();
        let typed = format!("stty -echo; echo MP-''READS; {command}; echo MP-''DONE $?; stty echo\n");
        socket.write_all(typed.as_bytes()).await?;
        self.line(&format!("the guest begins `{command}`"), from, limit, |line| line.contains("MP-READS")).await?;
        socket.write_all(format!("{}\n\u{4}", input.trim_end_matches('\n')).as_bytes()).await?;
        self.ended(command, from, limit).await
    }

    async fn ended(&self, command: &str, from: usize, limit: Duration) -> Result<String> {
        // A line is seen while it is printed: the mark may be there before the exit status behind it.
        let is_done = |line: &str| line.split_once("MP-DONE ").is_some_and(|(_, status)| !status.trim().is_empty());
        self.line(&format!("the guest ran `{command}`"), from, limit, is_done).await?;
        let seen = self.printed().get(from..).unwrap_or_default().to_owned();
        // A shell that edits its line brackets what is pasted; those marks are not the command's output.
        Ok(seen.replace("\u{1b}[?2004l", "").replace("\u{1b}[?2004h", "").replace('\r', ""))
    }

    /// A console that is just logging in throws away what was typed before: asks until the shell answers.
    async fn shell_listens(&self, socket: &mut OwnedWriteHalf, limit: Duration) -> Result<()> {
        let from = self.printed().len();
        let deadline = tokio::time::Instant::now() + limit;
        loop {
            socket.write_all(b"\necho MP-''HERE\n").await?;
            let answered =
                self.line("the guest's shell answers", from, Duration::from_secs(3), |l| l.contains("MP-HERE"));
            match answered.await {
                Ok(_) => return Ok(()),
                Err(error) if tokio::time::Instant::now() > deadline => return Err(error),
                Err(_) => {}
            }
        }
    }
}
