//! `boot-load`: the clients of `bench boot`, one kind per subcommand, each a process in the network that it asks from. It is built as
//! what ships is, so that a slow client does not hide a fast server, and it is the same for every server that is measured.
//!
//! What was measured is one line of JSON on standard output. An answer that is wrong, or that does not come, ends it with an error:
//! there is no figure of a run that failed.
//!
//! | file | what |
//! |---|---|
//! | `dhcp.rs` | many clients behind one relay, from DISCOVER to ACK |
//! | `packet.rs` | what they say, and what an answer has to be |
//! | `tftp.rs` | one file, with block size and window |
//! | `image.rs` | one image onto a disk, by the crate that the installer writes by |

mod dhcp;
mod image;
mod packet;
mod tftp;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "boot-load", about = "The clients of `bench boot`")]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Clients that ask for their addresses
    Dhcp(dhcp::Options),
    /// A file by TFTP
    Tftp(tftp::Options),
    /// An image by HTTP, onto a disk
    Image(image::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().what) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("boot-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(what: What) -> Result<String> {
    Ok(match what {
        What::Dhcp(options) => serde_json::to_string(&dhcp::run(&options)?)?,
        What::Tftp(options) => serde_json::to_string(&tftp::run(&options)?)?,
        What::Image(options) => serde_json::to_string(&image::run(&options)?)?,
    })
}
