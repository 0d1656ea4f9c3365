//! The CNI plugin of type `metalplane`: see the library.

use cni::{Environment, Install, run};
use std::io::{Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == ["--version"] {
        println!("metalplane {}", version::VERSION);
        return ExitCode::SUCCESS;
    }
    if let Some(install) = Install::of(&arguments) {
        return match install.and_then(|install| install.run()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mut stdin = Vec::new();
    let read = std::io::stdin().read_to_end(&mut stdin);
    let done = run(&Environment::of_process(), read.map(|_| stdin));
    let (text, code) = match &done {
        Ok(text) => (text.clone(), ExitCode::SUCCESS),
        Err(error) => (error.to_json(), ExitCode::FAILURE),
    };
    // Whoever cannot be told sees the exit code.
    let told = std::io::stdout().write_all(text.as_bytes());
    if told.is_err() { ExitCode::FAILURE } else { code }
}
