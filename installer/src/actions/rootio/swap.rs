//! For which kernels swap space is: its header is of one size of pages (`imaging::swap`).

/// By mkswap's option `-p`, or `--pagesize`; else, as by mkswap, of the kernel that runs here. The system that is installed may have another kernel,
/// as on arm64, where Debian has kernels with pages of 4 KiB and of 64 KiB.
pub(super) fn page(options: &[String]) -> Result<usize, String> {
    let mut options = options.iter();
    while let Some(option) = options.next() {
        let given = match option.as_str() {
            "-p" | "--pagesize" => Some(options.next().map(String::as_str).unwrap_or_default()),
            other => other.strip_prefix("--pagesize=").or_else(|| other.strip_prefix("-p")),
        };
        if let Some(given) = given {
            return given.parse().map_err(|_| format!("create.options: {option} wants a size in bytes, not {given:?}"));
        }
    }
    Ok(rustix::param::page_size())
}

#[cfg(test)]
mod tests {
    use super::page;

    #[test]
    fn pages_are_those_of_the_option_or_of_the_kernel() {
        let of = |options: &[&str]| page(&options.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["-L", "SWAP"]), Ok(rustix::param::page_size()), "not used, as by upstream");
        for options in [&["-p", "65536"][..], &["-p65536"], &["-L", "a", "--pagesize", "65536"], &["--pagesize=65536"]]
        {
            assert_eq!(of(options), Ok(65536), "{options:?}");
        }
        for options in [&["-p"][..], &["-p", "64K"], &["--pagesize="]] {
            assert!(of(options).is_err_and(|error| error.contains("create.options")), "{options:?}");
        }
    }
}
